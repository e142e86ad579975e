# SPDX-License-Identifier: MIT
"""The board: shared words, one writer each."""

from __future__ import annotations

import os

import pytest

from echomq_pool.ipc.board import Board


def test_every_word_stands_alone() -> None:
    board = Board.create(5, 3)
    for slot in range(5):
        board.beat(slot, 100 + slot)
        board.set_deadline(slot, 200 + slot)
        board.set_busy(slot, 300 + slot)
        for queue in range(3):
            board.set_renewed(slot, queue, 1_000 + 10 * slot + queue)
    for queue in range(3):
        board.set_position(queue, 1_800_000_000_000 + queue, queue)
    board.set_pass(77)
    for slot in range(5):
        assert board.beat_ms(slot) == 100 + slot
        assert board.deadline_ms(slot) == 200 + slot
        assert board.busy(slot) == 300 + slot
        assert [board.renewed_ms(slot, q) for q in range(3)] == [1_000 + 10 * slot + q for q in range(3)]
    assert [board.position(q) for q in range(3)] == [(1_800_000_000_000 + q, q) for q in range(3)]
    assert board.pass_ms() == 77
    board.close()


def test_clearing_a_slot_leaves_its_neighbours() -> None:
    board = Board.create(3, 2)
    for slot in range(3):
        board.beat(slot, 1)
        board.set_renewed(slot, 1, 1)
    board.clear_slot(1)
    assert [board.beat_ms(s) for s in range(3)] == [1, 0, 1]
    assert [board.renewed_ms(s, 1) for s in range(3)] == [1, 0, 1]
    board.close()


def test_a_forked_process_writes_into_the_same_board() -> None:
    board = Board.create(2, 1)
    pid = os.fork()
    if pid == 0:
        Board.attach(board.fd).beat(1, 42)
        os._exit(0)
    os.waitpid(pid, 0)
    assert board.beat_ms(1) == 42
    board.close()


def test_a_board_without_queues_and_with_the_supervisor_alone() -> None:
    board = Board.create(1, 0)
    board.beat(0, 5)
    board.clear_slot(0)
    assert board.beat_ms(0) == 0
    board.close()


@pytest.mark.parametrize(("slots", "queues"), [(0, 1), (1, -1)])
def test_impossible_sizes_are_refused(slots: int, queues: int) -> None:
    with pytest.raises(ValueError, match="board"):
        Board.create(slots, queues)


def test_a_foreign_descriptor_is_no_board() -> None:
    for size in (0, 4096):
        fd = os.memfd_create("other")
        os.ftruncate(fd, size)
        with pytest.raises(ValueError, match="no board"):
            Board.attach(fd)
        os.close(fd)


def test_nobody_can_shrink_it_under_its_readers() -> None:
    board = Board.create(2, 1)
    with pytest.raises(PermissionError):
        os.ftruncate(board.fd, 0)
    board.close()


def test_a_wrong_slot_or_queue_is_an_error_and_not_a_neighbour() -> None:
    board = Board.create(2, 1)
    for wrong in (-1, 2):
        with pytest.raises(IndexError):
            board.beat(wrong, 1)
    with pytest.raises(IndexError):
        board.set_renewed(0, 1, 1)
    with pytest.raises(IndexError):
        board.set_position(-1, 1, 1)
    board.close()


def test_a_position_past_22_bits_is_stored_too_low_never_too_high() -> None:
    board = Board.create(1, 1)
    board.set_position(0, 1_800_000_000_000, 1 << 30)
    assert board.position(0) == (1_800_000_000_000, (1 << 22) - 1)
    board.close()
