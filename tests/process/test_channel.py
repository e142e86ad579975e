# SPDX-License-Identifier: MIT
"""Frames over a SEQPACKET pair, and the traps of that transport."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.ipc.channel import (
    HARD_CAP,
    HEADER,
    NO_SLOT,
    RECORD_CAP,
    Channel,
    Frame,
    ProtocolError,
    pair,
)
from echomq_pool.ipc.messages import (
    Cancel,
    Events,
    Failed,
    Held,
    HeldJob,
    Kind,
    Lost,
    Message,
    Quiet,
    Recovered,
    Resume,
    Settled,
    Stats,
    Wish,
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    here, there = (Channel(end) for end in pair())
    yield here, there
    here.close()
    there.close()


def job(n: int, size: int = 40) -> HeldJob:
    return HeldJob("q", f"{n}", "t" * size, 1, 1, 3, None, False, 1, 0, "n")


def drain(here: Channel, there: Channel) -> list[Frame]:
    """Everything that `here` has for `there`."""
    frames: list[Frame] = []
    while True:
        empty = here.flush()
        got = there.receive()
        frames += got
        if empty and not got:
            return frames


def test_a_message_arrives_as_it_was_sent(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send(Held("w", [job(1), job(2)], full=True, end=True), slot=7)
    (frame,) = there.receive()
    assert (frame.kind, frame.count, frame.slot, frame.seq) == (Kind.HELD, 2, 7, 1)
    assert frame.message() == Held("w", [job(1), job(2)], full=True, end=True)


def test_a_frame_is_forwarded_byte_for_byte(ends: tuple[Channel, Channel]) -> None:
    """The hub passes records on undecoded."""
    here, there = ends
    here.send(Cancel("q", "1", "why"), slot=3)
    (frame,) = there.receive()
    there.forward(frame)
    (back,) = here.receive()
    assert back == frame


def test_control_leaves_at_once_and_telemetry_waits_for_company(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send(Stats({"done": 1}, {}, {}))
    assert there.receive() == []
    assert here.pending == 1
    here.send(Quiet())
    assert [f.kind for f in there.receive()] == [Kind.STATS, Kind.QUIET]
    for _ in range(31):
        here.send(Stats({}, {}, {}))
    assert there.receive() == []
    here.send(Stats({}, {}, {}))
    assert len(there.receive()) == 32
    here.send(Stats({"x" * 40_000: 1}, {}, {}))
    assert len(there.receive()) == 1


def test_receive_takes_no_more_than_its_limit(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    for _ in range(40):
        here.send(Quiet())
    assert len(there.receive()) == 32
    assert len(there.receive()) == 8


@pytest.mark.parametrize(
    "message",
    [
        Held("w", [job(n, 200) for n in range(3_000)], full=True, end=True),
        Settled("w", [["q", str(n), "t" * 300] for n in range(3_000)]),
        Lost("w", [["q", str(n), "t" * 300] for n in range(3_000)]),
        Recovered("w", [["q", "i" * 300, n, "wait"] for n in range(3_000)]),
    ],
)
def test_a_long_job_list_is_split_into_records_of_64_kib(
    ends: tuple[Channel, Channel], message: Held | Settled | Lost | Recovered
) -> None:
    here, there = ends
    here.send(message, slot=2)
    frames = drain(here, there)
    assert len(frames) > 5
    assert all(len(f.raw) <= RECORD_CAP and f.slot == 2 for f in frames)
    parts = [f.message() for f in frames]
    joined = [j for p in parts if isinstance(p, Held | Settled | Lost | Recovered) for j in p.jobs]
    assert joined == message.jobs
    assert sum(f.count for f in frames) == 3_000


def test_only_the_last_record_of_a_retelling_carries_its_end_mark(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send(Held("w", [job(n, 200) for n in range(2_000)], full=True, end=True))
    parts = [f.message() for f in drain(here, there)]
    assert [p.end for p in parts if isinstance(p, Held)] == [False] * (len(parts) - 1) + [True]
    assert all(p.full for p in parts if isinstance(p, Held))


def test_what_was_settled_is_told_once_before_what_is_held(ends: tuple[Channel, Channel]) -> None:
    """law 9: a job that comes back under its old token would else be forgotten in the middle of its run."""
    here, there = ends
    settled = [["q", "1", "t"], ["q", "2", "t"]]
    here.send(Held("w", [job(n, 200) for n in range(2_000)], settled=settled))
    parts = [f.message() for f in drain(here, there)]
    assert len(parts) > 1
    assert [p.settled for p in parts if isinstance(p, Held)] == [settled] + [[]] * (len(parts) - 1)


def test_a_text_too_long_for_any_record_is_cut(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send(Failed("boom", "x" * 1_000_000))
    (frame,) = there.receive()
    message = frame.message()
    assert isinstance(message, Failed)
    assert message.error == "boom"
    assert message.trace.endswith("cut")


def test_what_fits_no_record_is_an_error_unless_it_is_telemetry(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send(Events({"q": {"x" * HARD_CAP: 1}}))
    here.flush()
    assert here.dropped == 1
    with pytest.raises(ProtocolError, match="HELD"):
        here.send(Held("w", [job(1, HARD_CAP)]))
    here.send(Quiet())
    assert [f.kind for f in there.receive()] == [Kind.QUIET]


def test_a_full_outbox_drops_telemetry_first_and_control_never() -> None:
    one, two = pair()
    here, there = Channel(one, max_outbox=50), Channel(two)
    while here.pending == 0:  # until the kernel takes no more
        here.send(Wish("x" * 1_000))
    for _ in range(100):
        here.send(Stats({}, {}, {}))
    assert here.pending == 50
    sent = 0
    for _ in range(80):
        here.send(Resume())
        sent += 1
    assert here.overfull
    kinds = [f.kind for f in drain(here, there)]
    assert kinds.count(Kind.RESUME) == sent
    assert kinds.count(Kind.STATS) == 0
    assert here.dropped == 100
    here.close()
    there.close()


def test_a_full_socket_never_blocks(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    while here.flush():
        here.send(Wish("x" * 1_000))
    assert here.pending
    assert there.receive()
    drain(here, there)
    assert here.flush()


def test_what_a_dead_peer_had_sent_is_read_after_the_reset() -> None:
    """A peer that dies with unread input: ECONNRESET comes first, its last records after it."""
    one, two = pair()
    here, there = Channel(one), Channel(two)
    here.send(Quiet())
    there.send(Wish("last words"))
    there.close()
    assert [f.message() for f in here.receive()] == [Wish("last words")]
    assert here.closed
    here.send(Quiet())
    assert here.broken
    assert here.flush()
    here.close()


def test_the_end_of_file_is_seen_only_after_the_last_record() -> None:
    one, two = pair()
    here, there = Channel(one), Channel(two)
    for _ in range(3):
        there.send(Quiet())
    there.close()
    assert len(here.receive(2)) == 2
    assert here.closed is False
    assert len(here.receive(2)) == 1
    assert here.receive() == []
    assert here.fileno() >= 0


def test_a_writer_killed_in_the_middle_leaves_only_whole_records() -> None:
    one, two = pair()
    pid = os.fork()
    if pid == 0:
        there = Channel(two)
        while True:
            there.send(Held("w", [job(n) for n in range(200)]))
    two.close()
    here = Channel(one)
    frames: list[Frame] = []
    while len(frames) < 50:
        frames += here.receive()
    os.kill(pid, 9)
    while not here.closed:
        frames += here.receive()
    os.waitpid(pid, 0)
    assert all(f.message() == Held("w", [job(n) for n in range(200)]) for f in frames)
    here.close()


@pytest.mark.parametrize(
    "record",
    [
        b"x",
        HEADER.pack(Kind.QUIET, 2, 1, NO_SLOT, 1) + b"[]",
        HEADER.pack(200, 1, 1, NO_SLOT, 1) + b"[]",
        HEADER.pack(Kind.QUIET, 1, 1, NO_SLOT, 1) + b" " * 210_000,
    ],
)
def test_a_record_that_is_none_of_ours_harms_nothing(record: bytes) -> None:
    one, two = pair()
    here = Channel(one)
    two.send(record)
    two.send(HEADER.pack(Kind.QUIET, 1, 1, NO_SLOT, 1) + b"[]")
    frames = here.receive()
    assert [f.message() for f in frames[-1:]] == [Quiet()]
    assert here.refused + len(frames) == 2
    here.close()
    two.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[1,2]", b"null", b'"x"'])
def test_a_body_that_does_not_fit_its_kind_is_a_protocol_error(body: bytes) -> None:
    frame = Frame(Kind.CANCEL, 1, 0, 1, HEADER.pack(Kind.CANCEL, 1, 1, 0, 1) + body)
    with pytest.raises(ProtocolError):
        frame.message()


def test_an_empty_record_is_never_sent(ends: tuple[Channel, Channel]) -> None:
    """It would read as end of file."""
    here, there = ends
    here.forward(Frame(Kind.QUIET, 1, 0, 1, b""))
    here.send(Quiet())
    assert len(there.receive()) == 1
    assert not there.closed


@given(st.text(alphabet=st.characters()), st.text(alphabet=st.characters(categories=["Cs", "Ll", "So"])))
def test_any_text_survives(name: str, reason: str) -> None:
    """case C110: lone surrogates included."""
    one, two = pair()
    here, there = Channel(one), Channel(two)
    message: Message = Cancel(name, "1", reason)
    here.send(message)
    assert [f.message() for f in there.receive()] == [message]
    here.close()
    there.close()


def test_both_ends_close_on_exec_and_do_not_block() -> None:
    for end in pair():
        assert not end.get_inheritable()
        assert not end.getblocking()
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 212_000
        end.close()
