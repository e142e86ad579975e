# SPDX-License-Identifier: MIT
"""Key names and the names that keys are made of."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.errors import InputError
from echomq_pool.plane.keys import SUFFIXES, QueueKeys, check_job_id, check_queue_name, job_id_of

PLAIN = st.text(st.characters(codec="utf-8", exclude_characters=":{}"), min_size=1).filter(str.strip)


def test_the_lock_key_reads_as_the_protocol_says() -> None:
    """promise 0.2, 4.1"""
    assert QueueKeys("emq", "orders").lock("17") == "emq:{orders}:17:lock"
    assert QueueKeys("bull", "orders", hash_tag=False).lock("17") == "bull:orders:17:lock"


@given(PLAIN, PLAIN)
def test_a_lock_key_is_the_job_key_and_lock(queue: str, job_id: str) -> None:
    """promise 0.3"""
    keys = QueueKeys("emq", queue)
    assert keys.lock(job_id) == keys.job(job_id) + ":lock"
    assert keys.job(job_id) == f"emq:{{{queue}}}:{job_id}"
    assert job_id_of(keys.job(job_id)) == job_id


def test_braces_around_a_name_are_not_doubled() -> None:
    assert QueueKeys("emq", "{orders}").base == "emq:{orders}:"
    assert QueueKeys("emq", "{a}{b}").base == "emq:{{a}{b}}:"
    assert QueueKeys("emq", "{}").base == "emq:{{}}:"


def test_client_names_carry_the_queue_in_base64_as_dashboards_look_for_it() -> None:
    keys = QueueKeys("emq", "orders")
    encoded = base64.b64encode(b"{orders}").decode()
    assert keys.worker_client_name() == f"emq:{encoded}"
    assert keys.worker_client_name("w1") == f"emq:{encoded}:w:w1"
    assert keys.events_client_name() == f"emq:{encoded}:qe"


def test_scheduler_jobs_live_beside_their_scheduler() -> None:
    keys = QueueKeys("emq", "orders")
    assert keys.scheduler("nightly") == "emq:{orders}:repeat:nightly"
    assert (
        keys.job(keys.occurrence("nightly", 1_800_000_000_000)) == "emq:{orders}:repeat:nightly:1800000000000"
    )


@pytest.mark.parametrize("name", ["", " ", "\t", "a:b", None, 5, "\ud800"])
def test_a_queue_name_that_makes_unusable_keys_is_refused(name: object) -> None:
    """case C143"""
    with pytest.raises(InputError, match="queue name"):
        check_queue_name(name)


@pytest.mark.parametrize("name", ["orders", "x" * 300, "💥", "with space", "{tagged}"])
def test_any_other_queue_name_is_accepted(name: str) -> None:
    """case C143"""
    check_queue_name(name)
    assert QueueKeys("emq", name).key("wait").endswith(":wait")


@pytest.mark.parametrize("prefix", ["", "  ", None, 3])
def test_a_prefix_must_be_a_text(prefix: object) -> None:
    with pytest.raises(InputError, match="prefix"):
        QueueKeys(prefix, "orders")  # type: ignore[arg-type]


# What Node 6.2 answers to `new Job(queue, 'n', {}, {jobId})`: refused or not.
NODE_IDS = {
    "123": False,
    "0": False,
    "-5": False,
    "00123": True,
    "12a": True,
    "1e3": True,
    "a": True,
    "a:b": False,
    "a:b:c": True,
    "a:b:c:d": False,
    "0:a:b": False,
    "9007199254740993": True,
    "-0": True,
}


@pytest.mark.parametrize(("job_id", "accepted"), NODE_IDS.items())
def test_custom_ids_follow_the_rules_of_node(job_id: str, accepted: bool) -> None:
    """case C141, C142"""
    if accepted:
        check_job_id(job_id)
    else:
        with pytest.raises(InputError, match="job id"):
            check_job_id(job_id)


@pytest.mark.parametrize("name", SUFFIXES)
def test_an_id_whose_hash_would_be_a_key_of_the_queue_itself_is_refused(name: str) -> None:
    """law 13: a job `wait` would be a hash where the list belongs, and then nothing could be added any more"""
    with pytest.raises(InputError, match="job id"):
        check_job_id(name)


@pytest.mark.parametrize("job_id", [5, None, 1.5, b"x", ""])
def test_an_id_that_is_no_text_is_refused(job_id: object) -> None:
    """case C142"""
    with pytest.raises(InputError, match="job id"):
        check_job_id(job_id)
