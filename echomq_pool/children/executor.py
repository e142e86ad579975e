# SPDX-License-Identifier: MIT
"""Runs one job and returns what became of it as a value; no exception of the user's gets past this file.

`async def` runs as a task of its own on the worker's loop, so that cancelling it, or whatever it does to its own
task, touches nobody else. Plain functions run in a pool of as many threads as the worker has slots.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from concurrent.futures import ThreadPoolExecutor

from echomq_pool.api.job import Job, SyncJob
from echomq_pool.children.outcome import Outcome, done, failed, raised
from echomq_pool.children.processor import Processor


class Executor:
    """Starts runs. Must be used on the worker's loop."""

    def __init__(self, processor: Processor, concurrency: int) -> None:
        self.processor = processor
        self._loop = asyncio.get_running_loop()
        self._threads = None if processor.is_async else ThreadPoolExecutor(concurrency, "job")

    def start(self, job: Job) -> asyncio.Future[Outcome]:
        """Starts `job` in the next turn of the loop, not in this one: what is told about it now goes out first.

        Cancelling the future stops an async job; a thread cannot be stopped (`stoppable`).
        """
        if self._threads is None:
            return self._loop.create_task(_run_async(self.processor, job), name=f"job {job.id}")
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

    def _submit(self, job: Job, future: asyncio.Future[Outcome]) -> None:
        assert self._threads is not None
        run = contextvars.copy_context().run
        threaded = job.threaded(self._loop)
        running = self._loop.run_in_executor(self._threads, run, _run_sync, self.processor, threaded)
        running.add_done_callback(lambda ended: _pass_on(ended, future))


def _pass_on(ended: asyncio.Future[Outcome], future: asyncio.Future[Outcome]) -> None:
    if not future.done() and not ended.cancelled():
        future.set_result(ended.result())


async def _run_async(processor: Processor, job: Job) -> Outcome:
    try:
        return done(await processor.call(job))
    except (
        BaseException
    ) as error:  # KeyboardInterrupt, SystemExit, CancelledError: all end a job, none the worker
        return _caught(error)


def _run_sync(processor: Processor, job: SyncJob) -> Outcome:
    try:
        result = processor.call(job)
        if inspect.iscoroutine(result):
            result.close()
            return failed(
                f"processor {processor.path} returned a coroutine: declare it `async def`", final=True
            )
        return done(result)
    except BaseException as error:
        return _caught(error)


def _caught(error: BaseException) -> Outcome:
    try:
        return raised(error)
    finally:
        del error  # else the traceback keeps this frame, and with it the job's data, in a circle
