# SPDX-License-Identifier: MIT
"""What user code can throw at a worker: every job ends on record, and the process works on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from echomq_pool.ipc.messages import Stats, Wish
from tests.support.hub import Hub, Jobs, config_for
from tests.support.processors import notes
from tests.support.servers import Server
from tests.support.waiting import eventually


def run_tricks(
    server: Server, queue: str, processor: str, names: list[str], **options: Any
) -> dict[str, dict[str, str]]:
    """Runs one job per trick and a good one behind them; returns the hash of each."""
    jobs = Jobs(server, queue)
    ids = {name: jobs.put(name) for name in names}
    good = jobs.put("ok")
    with Hub(config_for(server, (queue,), processor, **options)) as hub:
        jobs.done(len(names) + 1)
        assert hub.process.poll() is None, hub.log()
    assert jobs.result(good) == "fine"
    return {name: jobs.get(job_id) for name, job_id in ids.items()}


def stack(found: dict[str, str]) -> str:
    return "\n".join(json.loads(found["stacktrace"]))


@pytest.mark.parametrize("processor", ["processors:trick", "processors:trick_async"])
def test_errors_are_kept_as_text(valkey_server: Server, queue_name: str, processor: str) -> None:
    """case C112: exceptions that cannot be pickled, chained, or printed are recorded with message and stack."""
    found = run_tricks(valkey_server, queue_name, processor, ["odd", "chain", "mute", "deep", "missing"])
    assert found["odd"]["failedReason"] == "one and two"
    assert "_raise" in stack(found["odd"])
    assert found["chain"]["failedReason"] == "the outer"
    assert "direct cause" in stack(found["chain"])
    assert "Mute" in found["mute"]["failedReason"]
    assert "recursion" in found["deep"]["failedReason"]
    assert found["missing"]["failedReason"] == "No module named 'no_such_module_anywhere'"


@pytest.mark.parametrize("processor", ["processors:trick", "processors:trick_async"])
def test_results_that_are_no_json_fail_their_job_only(
    valkey_server: Server, queue_name: str, processor: str
) -> None:
    """case C113, C105: the reason names the type, NaN or the circle; the next job runs."""
    names = ["object", "set", "date", "circle", "abyss", "nan", "inf"]
    found = run_tricks(valkey_server, queue_name, processor, names)
    words = {
        "object": "object",
        "set": "set",
        "date": "datetime",
        "circle": "dict",
        "abyss": "list",
        "nan": "NaN",
        "inf": "NaN or Infinity at $.a[1]",
    }
    for name, word in words.items():
        assert "not JSON" in found[name]["failedReason"]
        assert word in found[name]["failedReason"]
        assert "returnvalue" not in found[name]


def test_unusual_json_is_kept(valkey_server: Server, queue_name: str) -> None:
    """case C113, C104: deep nests, lone surrogates and integers beyond 64 bits are JSON."""
    found = run_tricks(valkey_server, queue_name, "processors:trick", ["nest", "surrogate", "huge", "none"])
    assert found["nest"]["returnvalue"] == "[" * 61 + "]" * 61
    assert json.loads(found["surrogate"]["returnvalue"]) == "\ud800"
    assert json.loads(found["huge"]["returnvalue"]) == 2**70
    assert found["none"]["returnvalue"] == "null"


@pytest.mark.parametrize("processor", ["processors:trick", "processors:trick_async"])
def test_exits_and_base_exceptions_end_the_job_not_the_worker(
    valkey_server: Server, queue_name: str, processor: str
) -> None:
    """case C115, C116, C164: sys.exit, KeyboardInterrupt, GeneratorExit, CancelledError, any BaseException."""
    names = ["exit0", "exitx", "interrupt", "generator", "bare", "cancelled", "thread_exit"]
    found = run_tricks(valkey_server, queue_name, processor, names)
    assert found["exit0"]["failedReason"] == "job called sys.exit(0)"
    assert found["exitx"]["failedReason"] == "job called sys.exit('x')"
    assert found["interrupt"]["failedReason"] == "KeyboardInterrupt"
    assert found["generator"]["failedReason"] == "GeneratorExit"
    assert found["bare"]["failedReason"] == "Bare: bare bones"
    assert "cancelled" in found["cancelled"]["failedReason"].lower()
    assert found["thread_exit"]["returnvalue"] == '"survived"'


def test_cancellations_from_inside_end_on_record(valkey_server: Server, queue_name: str) -> None:
    """case C164: self-cancel, cancel of an inner task, TimeoutError; a stray task that exits harms nobody."""
    names = ["self_cancel", "inner_cancel", "wait_for", "stray_task"]
    found = run_tricks(valkey_server, queue_name, "processors:trick_async", names)
    assert "cancelled from inside" in found["self_cancel"]["failedReason"]
    assert "cancelled from inside" in found["inner_cancel"]["failedReason"]
    assert found["wait_for"]["failedReason"] == "TimeoutError"
    assert found["stray_task"]["returnvalue"] == '"survived"'


def test_large_payloads_pass_and_long_errors_are_cut(valkey_server: Server, queue_name: str) -> None:
    """case C118: 8 MB in, 8 MB out, an error of 8 MB; memory comes back."""
    jobs = Jobs(valkey_server, queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:trick", concurrency=1)) as hub:
        warm = jobs.put("ok")
        jobs.ended(warm, "completed")
        process = psutil.Process(hub.pid)
        base = process.memory_info().rss
        big = [jobs.put("big", blob="z" * 8_000_000) for _ in range(8)]
        long = jobs.put("long")
        jobs.done(10, within=40)
        assert all(len(jobs.field(i, "returnvalue") or "") == 8_000_002 for i in big)
        assert len(jobs.field(long, "failedReason") or "") < 20_000
        assert len(jobs.field(long, "stacktrace") or "") < 100_000
        eventually(lambda: process.memory_info().rss < base + (40 << 20), why="memory given back")


def test_attempts_and_back_off_are_as_in_node(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """None, fixed, exponential and custom back-off; atm counts ends, ats counts takes."""
    jobs = Jobs(valkey_server, queue_name)
    cases: dict[str, tuple[dict[str, Any], int]] = {
        "none": ({"attempts": 3}, 0),
        "fixed": ({"attempts": 3, "backoff": {"type": "fixed", "delay": 100}}, 200),
        "exponential": ({"attempts": 3, "backoff": {"type": "exponential", "delay": 60}}, 180),
        "custom": ({"attempts": 3, "backoff": {"type": "twice", "delay": 1}}, 60),
    }
    paths = {name: tmp_path / name for name in cases}
    ids = {name: jobs.put(opts=opts, notes=str(paths[name]), fails=2) for name, (opts, _) in cases.items()}
    with Hub(config_for(valkey_server, (queue_name,), "processors:flaky")):
        jobs.done(4)
    for name, (_, total) in cases.items():
        found = jobs.get(ids[name])
        assert (found["atm"], found["ats"], found["returnvalue"]) == ("3", "3", '"at last"'), name
        assert found["failedReason"] == "attempt 2 failed"
        assert len(json.loads(found["stacktrace"])) == 2
        starts = [row[3] for row in notes(paths[name])]
        assert total - 2 <= starts[-1] - starts[0] <= total + 400, name


def test_a_strategy_may_say_stop_and_unrecoverable_means_now(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """Custom back-off answers -1; UnrecoverableError fails with attempts left."""
    jobs = Jobs(valkey_server, queue_name)
    stop = jobs.put(opts={"attempts": 9, "backoff": {"type": "twice", "delay": 1}}, fails=99)
    with Hub(config_for(valkey_server, (queue_name,), "processors:flaky")):
        jobs.ended(stop, "failed")
    assert jobs.field(stop, "atm") == "3"
    fatal = jobs.put("fatal", opts={"attempts": 9})
    with Hub(config_for(valkey_server, (queue_name,), "processors:trick")):
        jobs.ended(fatal, "failed")
    assert jobs.field(fatal, "atm") == "1"
    assert jobs.field(fatal, "failedReason") == "never again"
    events = [e for e in jobs.events() if fatal in e.split("jobId=")[-1]]
    assert not any("retries-exhausted" in e for e in events)


def test_stack_traces_are_kept_to_their_limit(valkey_server: Server, queue_name: str) -> None:
    """StackTraceLimit keeps the newest; 0 keeps none."""
    jobs = Jobs(valkey_server, queue_name)
    two = jobs.put(opts={"attempts": 4, "stackTraceLimit": 2}, fails=9)
    none = jobs.put(opts={"attempts": 2, "stackTraceLimit": 0}, fails=9)
    with Hub(config_for(valkey_server, (queue_name,), "processors:flaky")):
        jobs.done(2)
    kept = json.loads(jobs.field(two, "stacktrace") or "")
    assert ["attempt 3 failed" in kept[0], "attempt 4 failed" in kept[1], len(kept)] == [True, True, 2]
    assert json.loads(jobs.field(none, "stacktrace") or "[]") in ([], {})


def test_a_retry_keeps_its_priority(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """case C132: the retry of a more urgent job runs before the less urgent ones."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    later = [jobs.put(opts={"priority": 50}, notes=str(path), fails=0) for _ in range(5)]
    urgent = jobs.put(opts={"priority": 25, "attempts": 2}, notes=str(path), fails=1)
    with Hub(config_for(valkey_server, (queue_name,), "processors:flaky", concurrency=1)):
        jobs.done(6)
    assert [row[1] for row in notes(path)] == [urgent, urgent, *later]


def test_jobs_that_moved_themselves_are_not_finished_again(valkey_server: Server, queue_name: str) -> None:
    """case C023: 20 jobs delay themselves once; all complete, no lock error is logged."""
    jobs = Jobs(valkey_server, queue_name)
    ids = [jobs.put("delay") for _ in range(20)] + [jobs.put("wait") for _ in range(5)]
    with Hub(config_for(valkey_server, (queue_name,), "processors:moves")) as hub:
        jobs.done(25)
        log = hub.log()
    assert {jobs.result(i) for i in ids} == {"second"}
    assert {(jobs.field(i, "atm"), jobs.field(i, "ats")) for i in ids} == {("1", "2")}
    assert "WARNING" not in log
    assert "ERROR" not in log


def test_a_rate_limited_job_keeps_its_place(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """case C131: the job that asked for the limit runs before its later sibling."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    first, second = (jobs.put("limit", opts={"priority": 10}, notes=str(path)) for _ in range(2))
    with Hub(config_for(valkey_server, (queue_name,), "processors:moves", concurrency=1)):
        jobs.done(2)
    order = [row[1] for row in notes(path)]
    assert order == [first, first, second, second]
    starts = [row[3] for row in notes(path)]
    assert starts[1] - starts[0] >= 480


def test_data_that_is_no_json_fails_unrun_and_stays_to_be_seen(
    valkey_server: Server, queue_name: str
) -> None:
    """law 13: a job that cannot be decoded fails with its reason and stays inspectable."""
    jobs = Jobs(valkey_server, queue_name)
    bad = str(jobs.add("", "ok", "{broken", attempts=3))
    good = jobs.put("ok")
    with Hub(config_for(valkey_server, (queue_name,), "processors:trick")):
        jobs.done(2)
    assert "no JSON" in (jobs.field(bad, "failedReason") or "")
    assert jobs.field(bad, "data") == "{broken"
    assert jobs.result(good) == "fine"


def test_an_id_without_a_hash_never_reaches_the_processor_and_leaves_nothing(
    valkey_server: Server, queue_name: str
) -> None:
    """case C021"""
    jobs = Jobs(valkey_server, queue_name)
    jobs.client.lpush(jobs.key("wait"), "ghost")
    good = jobs.put("ok")
    with Hub(config_for(valkey_server, (queue_name,), "processors:trick")):
        jobs.ended(good, "completed")
        eventually(lambda: not jobs.get("active"))
    assert [e for e in jobs.events() if "ghost" in e and "failed" in e]
    assert not [key for key in jobs.dump() if "ghost" in key]
    assert jobs.count("completed") == 1
    assert jobs.count("failed") == 0


def test_a_job_out_of_memory_fails_and_its_process_asks_to_be_replaced(
    valkey_server: Server, queue_name: str
) -> None:
    """case C116: MemoryError is on record, and what is left of the process is not trusted for long."""
    jobs = Jobs(valkey_server, queue_name)
    job_id = jobs.put("memory")
    with Hub(config_for(valkey_server, (queue_name,), "processors:trick")) as hub:
        jobs.ended(job_id, "failed")
        assert jobs.field(job_id, "failedReason") == "MemoryError"
        assert eventually(lambda: hub.of(Wish))[0].reason == "memory_error"


@pytest.mark.parametrize(("name", "code"), [("os_exit", 0), ("segfault", -11)])
def test_a_process_that_its_job_kills_is_gone_with_the_job_still_held(
    valkey_server: Server, queue_name: str, name: str, code: int
) -> None:
    """case C115: os._exit and a segmentation fault are deaths; the job waits in active for the undertaker."""
    jobs = Jobs(valkey_server, queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:trick")) as hub:
        job_id = jobs.put(name)
        assert hub.exit_code() == code
        assert [job.id for job in hub.held.values()] == [job_id]
        assert jobs.get("active") == [job_id]
        assert not any("completed" in s.counters for s in hub.of(Stats))


@pytest.mark.parametrize("processor", ["processors:trick", "processors:trick_async"])
def test_a_process_forked_by_a_job_never_becomes_a_second_worker(
    valkey_server: Server, queue_name: str, processor: str
) -> None:
    """law 1, case C112: whichever way the child comes back, it ends; the job is its parent's alone."""
    names = ["fork_return", "fork_raise", "fork_exit"]
    names += ["fork_await"] if processor.endswith("async") else []
    found = run_tricks(valkey_server, queue_name, processor, names)
    for name in names:
        assert found[name].get("failedReason") is None
        assert found[name]["ats"] == "1"
        child = int(json.loads(found[name]["returnvalue"]))
        eventually(lambda pid=child: is_gone(pid))


def test_a_job_that_closes_descriptors_of_the_worker_costs_that_process(
    valkey_server: Server, queue_name: str
) -> None:
    """law 3: a process whose descriptors are no longer its own ends, instead of holding its job without hearing."""
    jobs = Jobs(valkey_server, queue_name)
    jobs.put("close_sockets")
    with Hub(config_for(valkey_server, (queue_name,), "processors:trick_async")) as hub:
        eventually(lambda: hub.process.poll() == 1, within=30)
        assert "cannot be trusted" in hub.log()


def is_gone(pid: int) -> bool:
    """Dead, if perhaps not yet reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
