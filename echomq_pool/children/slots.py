# SPDX-License-Identifier: MIT
"""The life of a slot: take a job, tell of it, run it, settle it, and go on with what the settlement fetched.

The order is the point: the client ids of a connection are told before its first take, a job is told (`held`) before
its user code starts, and it is told to be settled only after the server has said so. Whoever dies in between leaves
enough behind for the lock manager to give the job back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping

from echomq_pool.api.lease_job import job_of
from echomq_pool.children.executor import Executor
from echomq_pool.children.fetcher import Fetcher
from echomq_pool.children.gate import Gate
from echomq_pool.children.ledger import Ledger
from echomq_pool.children.outcome import CANCELLED, MOVED, Fate, Outcome, failed
from echomq_pool.children.recycle import Recycle
from echomq_pool.children.run import Run, Source
from echomq_pool.children.settler import Next, Settler
from echomq_pool.children.watch import Watch
from echomq_pool.clock import Clock
from echomq_pool.errors import InputError, JobError, LinkError, ReplyError
from echomq_pool.metrics import Metrics
from echomq_pool.plane.base import Nothing, Taken

log = logging.getLogger("echomq.worker")

RETRY_S = 1.0
EMPTIED_LOOK_S = 0.002
MAX_REFUSALS = 5  # error replies to one settlement before its job is left to the stalled check


class Slots:
    """Runs jobs one after another in each slot that the fetcher opens."""

    def __init__(
        self,
        *,
        worker_id: str,
        timeout_ms: int,
        limits: Mapping[str, int],
        clock: Clock,
        metrics: Metrics,
        ledger: Ledger,
        watch: Watch,
        executor: Executor,
        settler: Settler,
        recycle: Recycle,
    ) -> None:
        self.handed_back = 0
        self.busy: set[asyncio.Task[None] | None] = set()  # slots past their take
        self.fetcher: Fetcher  # set by the worker: the two need each other
        self._worker_id = worker_id
        self._timeout_ms = timeout_ms
        self._limits = limits  # of jobs by name, before the group's own
        self._clock = clock
        self._metrics = metrics
        self._ledger = ledger
        self._watch = watch
        self._executor = executor
        self._settler = settler
        self._recycle = recycle
        self._gate = Gate(lambda: self.fetcher.hold_back(), lambda: self.fetcher.let_go())
        self._tokens = itertools.count()
        self._parked = asyncio.Event()  # never set: where the slots of condemned runs wait for the end

    async def work(self, source: Source) -> None:
        """One slot, from a take until there is nothing more to go on with."""
        token = f"{self._worker_id}:{next(self._tokens)}"
        sent_ms = self._clock.mono_ms()
        try:
            answer = await source.plane.take(token, quiet=True)
        except Exception as exc:  # an edge: no error of one take may end the fetching
            self.fetcher.failed(source, exc)
            return
        if isinstance(answer, Nothing):
            self.fetcher.took_nothing(source, answer)
            return
        self.fetcher.took(source, answer.then)
        slot = asyncio.current_task()
        self.busy.add(slot)
        try:
            await self._chain(source, answer, sent_ms)
        finally:
            self.busy.discard(slot)

    async def _chain(self, source: Source, answer: Next, sent_ms: int) -> None:
        while isinstance(answer, Taken):
            run = self._begin(source, answer, sent_ms)
            try:
                outcome = await self._carry(run)
                sent_ms = run.stopped_ms or self._clock.mono_ms()
                answer = await self._end(run, outcome)
            finally:
                if run.inside:  # only now: until it is settled, a death would still convict this job
                    self._gate.leave(run.alone)
        if isinstance(answer, Nothing):
            self.fetcher.nothing(source, answer)

    def _begin(self, source: Source, taken: Taken, sent_ms: int) -> Run:
        job = job_of(taken.job, source.plane, taken.token, clock=self._clock)
        run = Run(source, taken.job, taken.token, job, sent_ms)
        run.limit_ms = self._limits.get(taken.job.name, self._timeout_ms)
        if run.limit_ms:
            run.deadline_ms = self._clock.mono_ms() + run.limit_ms
        self._metrics.count(f"taken|{source.name}")
        self._ledger.hold(run)
        self._watch.add(run)
        return run

    async def _carry(self, run: Run) -> Outcome | None:
        """Everything between take and settlement. None: the job is to be left alone."""
        if run.record.rjk is not None and not await self._produce_next(run):
            return None
        barred = self._barred(run)
        if barred is not None:
            return barred
        if run.alone:
            await self._emptied(run)
        if run.ended_by:
            return _judged(run, CANCELLED)
        future = self._start(run)
        try:
            return _judged(run, await future)
        except asyncio.CancelledError:
            if not future.cancelled():
                raise  # not the job: this slot is being cancelled
            return _judged(run, CANCELLED)
        finally:
            run.stopped_ms = self._clock.mono_ms()
            self._metrics.observe(f"duration|{run.source.name}", (run.stopped_ms - run.started_ms) / 1000)

    def _barred(self, run: Run) -> Outcome | None:
        """The end of a job that must not be started; None: it may, and counts as running."""
        record = run.record
        if record.is_ghost:
            record.opts["removeOnFail"] = True  # what is left of it is what the take wrote
            return failed(f"job {record.id} is gone: only its id was left in the queue", final=True)
        if record.defa is not None:
            return failed(record.defa, final=True)
        try:
            run.job.data  # noqa: B018 - decoded here, once: what is no JSON never reaches user code
        except InputError as exc:
            return failed(str(exc), final=True)
        # A job that has stalled once may be what kills its process: alone in it, it convicts nobody else.
        run.alone = record.stc > 0
        run.inside = self._gate.enter(run.alone)
        return None if run.inside else CANCELLED

    async def _emptied(self, run: Run) -> None:
        """What was being taken when `run` came in would be convicted with it: it goes back first."""
        # Rare and short; an event would have to be set by every way in which a take or a run can end.
        while not run.ended_by and (len(self._ledger) > 1 or any(s.taking for s in self.fetcher.sources)):  # noqa: ASYNC110
            await asyncio.sleep(EMPTIED_LOOK_S)

    def _start(self, run: Run) -> asyncio.Future[Outcome]:
        run.started_ms = self._clock.mono_ms()
        if run.limit_ms:
            run.deadline_ms = run.started_ms + run.limit_ms
            self._ledger.mark_deadline()
        run.future = self._executor.start(run.job)
        if run.limit_ms:
            self._watch.add(run)
        return run.future

    async def _produce_next(self, run: Run) -> bool:
        """Makes the next occurrence of a scheduler's job. False: it cannot be made, and the job must not run now.

        As in Node, such a job stays where it is until its lock has lapsed; then it is tried again.
        """
        while True:
            try:
                await run.source.plane.produce_next(run.record)
                return True
            except ReplyError as exc:
                return self._not_produced(run, exc)
            except LinkError:
                if run.ended_by:
                    return False
                await asyncio.sleep(RETRY_S)
            except Exception as exc:  # an option that no client can make a date of
                return self._not_produced(run, exc)

    def _not_produced(self, run: Run, exc: Exception) -> bool:
        text = "the next occurrence of job %s of %s cannot be made: %s"
        log.error(text, run.record.id, run.source.name, exc)
        return False

    async def _end(self, run: Run, outcome: Outcome | None) -> Next:
        """Settles the run as far as it is ours, and forgets it."""
        if run.condemned:
            await self._parked.wait()  # the lock manager settles it; a word from here would make it forget
        try:
            if outcome is None or run.ended_by == "lost":
                return None
            return await self._settle(run, outcome)
        finally:
            self._ledger.drop(run)
            if run.deadline_ms:
                self._ledger.mark_deadline()
            self._recycle.job_ended()
            if outcome is not None and isinstance(outcome.error, MemoryError):
                self._recycle.ask("memory_error")  # on record, but what is left of the process is not trusted

    async def _settle(self, run: Run, outcome: Outcome) -> Next:
        refusals = 0
        while True:
            try:
                if outcome.fate is Fate.CANCELLED:
                    await self._hand_back(run)
                    return None
                fetch = self.fetcher.wants_next(run.source)
                return await self._settler.settle(run, outcome, fetch=fetch)
            except LinkError as exc:
                # The plane waits for a lost link by itself; this is a server that turns us away.
                refusals += isinstance(exc, ReplyError)
                log.error("settling job %s of %s: %s", run.record.id, run.source.name, exc)
                if refusals >= MAX_REFUSALS:
                    return None
                await asyncio.sleep(RETRY_S)

    async def _hand_back(self, run: Run) -> None:
        try:
            await self._settler.release(run)
            self.handed_back += 1
        except JobError as refusal:
            log.info("job %s of %s not handed back: %s", run.record.id, run.source.name, refusal)


def _judged(run: Run, outcome: Outcome) -> Outcome:
    """The outcome in the light of where the job was put by itself, and of what we stopped it for."""
    if run.job.moved:
        return MOVED
    if not run.ended_by:
        own = outcome.fate is Fate.CANCELLED  # its task was cancelled, and not by us
        return failed("job was cancelled from inside") if own else outcome
    if run.ended_by == "stop":
        return outcome if outcome.fate in (Fate.DONE, Fate.MOVED, Fate.LIMITED) else CANCELLED
    if run.ended_by == "lost":
        return CANCELLED
    trace = f"{run.end_text}\n{outcome.trace}" if outcome.trace else run.end_text
    return Outcome(Fate.FAILED, reason=run.end_text, trace=trace, final=run.ended_by == "cancel")
