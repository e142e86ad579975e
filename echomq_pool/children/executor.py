# SPDX-License-Identifier: MIT
"""Runs one job and returns what became of it as a value; no exception of the user's gets past this file.

`async def` runs as a task of its own on the worker's loop, so that cancelling it, or whatever it does to its own
task, touches nobody else. Plain functions run in a pool of as many threads as the worker has slots.

A process that a job forks has our loop, our epoll and our connections, and must never work with them: it ends
where it would come back to us, from the processor or to the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
from concurrent.futures import ThreadPoolExecutor

from echomq_pool.api.job import Job, SyncJob
from echomq_pool.children.outcome import Outcome, done, failed, raised
from echomq_pool.children.processor import Processor

EXIT_STRAY = 70  # of a process forked by a job that would have gone on as a second worker


class Executor:
    """Starts runs. Must be used on the worker's loop."""

    def __init__(self, processor: Processor, concurrency: int) -> None:
        self.processor = processor
        self._loop = asyncio.get_running_loop()
        self._threads = None if processor.is_async else ThreadPoolExecutor(concurrency, "job")
        self._stray = False
        os.register_at_fork(after_in_child=self._strand)

    def start(self, job: Job) -> asyncio.Future[Outcome]:
        """Starts `job` in the next turn of the loop, not in this one: what is told about it now goes out first.

        Cancelling the future stops an async job; a thread cannot be stopped (`stoppable`).
        """
        if self._threads is None:
            return self._loop.create_task(self._run_async(job), name=f"job {job.id}")
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._loop.call_soon(self._submit, job, future)
        return future

    @property
    def stoppable(self) -> bool:
        """Whether a run can be stopped from inside the process."""
        return self._threads is None

    def close(self) -> None:
        """Lets idle threads end; running ones are not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _strand(self) -> None:
        """In a process that a job forked: its next turn of the loop is its last. Nothing else may run in that turn."""
        self._stray = True
        with contextlib.suppress(AttributeError):  # uvloop hides its list
            self._loop._ready.clear()  # type: ignore[attr-defined]
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon(os._exit, EXIT_STRAY)

    def _submit(self, job: Job, future: asyncio.Future[Outcome]) -> None:
        assert self._threads is not None
        run = contextvars.copy_context().run
        threaded = job.threaded(self._loop)
        running = self._loop.run_in_executor(self._threads, run, self._run_sync, threaded)
        running.add_done_callback(lambda ended: _pass_on(ended, future))

    async def _run_async(self, job: Job) -> Outcome:
        try:
            return done(await self.processor.call(job))
        except (
            BaseException
        ) as error:  # KeyboardInterrupt, SystemExit, CancelledError: all end a job, none the worker
            return _caught(error)
        finally:
            if self._stray:
                os._exit(EXIT_STRAY)

    def _run_sync(self, job: SyncJob) -> Outcome:
        try:
            result = self.processor.call(job)
            if inspect.iscoroutine(result):
                result.close()
                text = f"processor {self.processor.path} returned a coroutine: declare it `async def`"
                return failed(text, final=True)
            return done(result)
        except BaseException as error:
            return _caught(error)
        finally:
            if self._stray:
                os._exit(EXIT_STRAY)


def _pass_on(ended: asyncio.Future[Outcome], future: asyncio.Future[Outcome]) -> None:
    if not future.done() and not ended.cancelled():
        future.set_result(ended.result())


def _caught(error: BaseException) -> Outcome:
    try:
        return raised(error)
    finally:
        del error  # else the traceback keeps this frame, and with it the job's data, in a circle
