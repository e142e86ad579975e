# SPDX-License-Identifier: MIT
"""What a producer or operator does with one queue, written once for the asynchronous and the synchronous twin."""

from __future__ import annotations

from echomq_pool.api.ask import Ask, Op
from echomq_pool.api.ops_family import FamilyOps
from echomq_pool.api.ops_job import JobOps
from echomq_pool.api.ops_series import SeriesOps
from echomq_pool.api.ops_upkeep import UpkeepOps
from echomq_pool.clock import Clock
from echomq_pool.plane import codec
from echomq_pool.plane.calls import Call, Calls
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lease_desk import wrong_plane


class Operations(UpkeepOps, SeriesOps, FamilyOps):
    """The operations of one queue; those of single jobs are in `of_job`."""

    def __init__(self, keys: QueueKeys, calls: Calls, clock: Clock) -> None:
        super().__init__(keys, calls, clock)
        self.of_job = JobOps(keys, calls, clock)

    def open(self) -> Op[None]:
        """Makes sure that the queue is the lock plane's.

        Raises:
            WrongPlane: it is the lease plane's.
        """
        call = Call("lease/open", (self.keys.key("meta"), self.keys.base), ("lock",))
        (evidence,) = yield [Ask(call, repeat=True)]
        if evidence:
            raise wrong_plane(self.keys.base, "lock", codec.to_text(evidence))
