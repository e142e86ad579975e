# SPDX-License-Identifier: MIT
"""Writes the end of a run: completed, failed, retried, delayed, or handed back. One script each, with fetch-next.

The retry decision is Node's: `atm + 1 < attempts`, then the back-off says when (`backoff.py`). A transition that
the server refuses because the job is no longer ours writes nothing and is reported once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from echomq_pool.backoff import Strategy, retry_delay
from echomq_pool.children.outcome import Fate, Outcome, failed
from echomq_pool.children.run import Run
from echomq_pool.errors import ChildrenFailed, DependenciesPending, JobError
from echomq_pool.metrics import Metrics
from echomq_pool.plane.base import Nothing, Taken

log = logging.getLogger("echomq.worker")

Next = Taken | Nothing | None
REASON_SHOWN = 200  # characters of the reason in the log; the job keeps all of it


class Settler:
    """Settles runs against the plane of their queue."""

    def __init__(self, strategies: Mapping[str, Any], metrics: Metrics) -> None:
        self._strategies = strategies
        self._metrics = metrics

    async def settle(self, run: Run, outcome: Outcome, *, fetch: bool) -> Next:
        """Writes `outcome`. Returns what fetch-next brought, None when it was not asked for.

        A refusal is the end of it: the job is not ours (any more), and nothing was written.
        """
        run.settling = True
        try:
            if outcome.fate is Fate.DONE:
                try:
                    answer = await run.source.plane.complete(
                        run.record, run.token, outcome.value, fetch=fetch
                    )
                    self._metrics.count(f"completed|{run.source.name}")
                    return answer
                except (ChildrenFailed, DependenciesPending) as refusal:  # still ours: its children decide
                    outcome = failed(str(refusal), final=isinstance(refusal, ChildrenFailed))
            return await self._write(run, outcome, fetch)
        except JobError as refusal:
            self._count("lost", run)
            log.warning("job %s of %s is no longer ours: %s", run.record.id, run.source.name, refusal)
            return None

    async def release(self, run: Run) -> int:
        """Puts the job back to the front of the line, at no cost to it. Returns ms until the rate limit ends.

        Raises:
            JobError: it is no longer ours.
        """
        run.settling = True
        limited_ms = await run.source.plane.release(run.record, run.token)
        self._count("released", run)
        return limited_ms

    async def _write(self, run: Run, outcome: Outcome, fetch: bool) -> Next:
        if outcome.fate is Fate.MOVED:
            self._count("moved", run)
            return None
        if outcome.fate is Fate.LIMITED:
            return Nothing(limited_ms=await self.release(run))
        return await self._fail(run, outcome, fetch)

    async def _fail(self, run: Run, outcome: Outcome, fetch: bool) -> Next:
        """Failure: another attempt now, later, or never."""
        record, plane, token = run.record, run.source.plane, run.token
        wait_ms = None if outcome.final else self._wait_ms(run, outcome)
        trace = record.stacktrace_with(outcome.trace)
        _tell(run, outcome, wait_ms)
        if wait_ms is None:
            answer = await plane.fail(record, token, outcome.reason, trace, fetch=fetch)
            self._count("failed", run)
            return answer
        if wait_ms == 0:
            await plane.retry(record, token, outcome.reason, trace)
            self._count("retried", run)
            return None
        answer = await plane.delay(
            record, token, wait_ms, reason=outcome.reason, stacktrace=trace, fetch=fetch
        )
        self._count("retried", run)
        return answer

    def _wait_ms(self, run: Run, outcome: Outcome) -> float | None:
        """Until the next attempt; 0 = at once, None = there is none."""
        record = run.record
        try:
            return retry_delay(
                record.atm + 1, record.attempts, record.backoff, custom=self._strategy(run, outcome)
            )
        except Exception as exc:  # a strategy is user code, and the option is a producer's
            log.error("back-off of job %s of %s: %r", record.id, run.source.name, exc)
            return None

    def _strategy(self, run: Run, outcome: Outcome) -> Strategy | None:
        strategy = self._strategies.get(str((run.record.backoff or {}).get("type")))
        return None if strategy is None else lambda attempt: strategy(attempt, run.job, outcome.error)

    def _count(self, what: str, run: Run) -> None:
        self._metrics.count(f"{what}|{run.source.name}")


def _tell(run: Run, outcome: Outcome, wait_ms: float | None) -> None:
    """One line per failed attempt: which job, which attempt, what next, why."""
    record = run.record
    after = "not tried again" if wait_ms is None else f"tried again in {wait_ms:.0f} ms"
    log.info(
        "job %s (%s) of %s failed, attempt %d of %d, %s: %s",
        record.id, record.name, run.source.name, record.atm + 1, max(1, record.attempts), after,
        outcome.reason[:REASON_SHOWN],
    )  # fmt: skip
