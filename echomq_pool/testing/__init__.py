# SPDX-License-Identifier: MIT
"""For the tests of programs that use echomq-pool.

run_job(handle, {"order": 17})      runs a processor or task on a job, without a server; `await run_job_async(…)`
FrozenClock()                       time that moves only when told to
embedded_server()                   a server of its own for a test: `with embedded_server() as url`
pool(toml)                          the whole program on such a server: `with pool(text) as running`
"""

from __future__ import annotations

from echomq_pool.clock import FakeClock as FrozenClock
from echomq_pool.testing.jobs import JobResult, run_job, run_job_async
from echomq_pool.testing.pools import RunningPool, embedded_server, pool

__all__ = [
    "FrozenClock",
    "JobResult",
    "RunningPool",
    "embedded_server",
    "pool",
    "run_job",
    "run_job_async",
]
