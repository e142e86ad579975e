# SPDX-License-Identifier: MIT
"""What to do about a script whose reply was lost (law 6): the table, and the judgement of a doubtful move.

A connection that breaks after a call was written leaves open whether it ran. Each script has a rule:

    REPEAT   running it twice ends in the same state as once
    READ     it writes nothing
    FATE     it moves a held job: ask `fate`, which shows the job's lock, takes and stalls, then decide below
    CLAIM    it claims a job under a token of ours: ask `fate` for a job in active under that token
    BY_ID    repeat it when the caller gave the job id (the answer is then the same id); else tell the caller
    TELL     the caller must know; repeating would show twice
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Rule(Enum):
    """How a lost reply is dealt with."""

    REPEAT = "repeat"
    READ = "read"
    FATE = "fate"
    CLAIM = "claim"
    BY_ID = "by id"
    TELL = "tell"


RULES: dict[str, Rule] = {
    # a claim nobody heard of is found by its token
    "moveToActive": Rule.CLAIM,
    "takeOne": Rule.CLAIM,
    # transitions of a held job: the token is compared, so a second run changes nothing, but its answer lies
    "moveToFinished": Rule.FATE,
    "finishBatch": Rule.FATE,  # each of its jobs by itself
    "retryJob": Rule.FATE,
    "moveToDelayed": Rule.FATE,
    "moveJobFromActiveToWait": Rule.FATE,
    "moveToWaitingChildren": Rule.FATE,
    # renewing twice is renewing
    "extendLock": Rule.REPEAT,
    "extendLocks": Rule.REPEAT,
    "releaseLock": Rule.REPEAT,
    "reacquire": Rule.REPEAT,
    # the guard key makes the second pass answer "nothing"; what the first put back is put back
    "moveStalledJobsToWait": Rule.REPEAT,
    # a job given back has no lock of the dead owner any more, so it is not given back again
    "recoverOwner": Rule.REPEAT,
    "addStandardJob": Rule.BY_ID,
    "addDelayedJob": Rule.BY_ID,
    "addPrioritizedJob": Rule.BY_ID,
    "addParentJob": Rule.BY_ID,
    "pause": Rule.REPEAT,
    "updateData": Rule.REPEAT,
    "updateProgress": Rule.REPEAT,  # the event may show twice, with the same value
    "saveStacktrace": Rule.REPEAT,
    "addLog": Rule.TELL,
    # an upsert replaces its own occurrence; -10 then means that it was made
    "addJobScheduler": Rule.REPEAT,
    # advances only from the producing job's own slot
    "updateJobScheduler": Rule.REPEAT,
    "removeJobScheduler": Rule.REPEAT,
    # compares the slot it was computed for
    "repairScheduler": Rule.REPEAT,
    # an operator's verbs: those whose second answer would tell a lie are left to the caller
    "promote": Rule.TELL,
    "reprocessJob": Rule.TELL,
    "obliterate": Rule.TELL,
    "removeChildDependency": Rule.TELL,
    "removeDeduplicationKey": Rule.TELL,
    "addJobs": Rule.TELL,
    "addFlow": Rule.TELL,  # a child that is done and gone by now would be added once more
    "changeDelay": Rule.REPEAT,
    "changePriority": Rule.REPEAT,
    "removeJob": Rule.REPEAT,  # a job that is gone counts as removed
    "removeUnprocessedChildren": Rule.REPEAT,
    "removeOrphanedJobs": Rule.REPEAT,
    "drain": Rule.REPEAT,
    "cleanJobsInSet": Rule.REPEAT,
    "moveJobsToWait": Rule.REPEAT,
    "getRanges": Rule.READ,
    "getJobs": Rule.READ,
    "getMetrics": Rule.READ,
    "getRateLimitTtl": Rule.READ,
    "getCountsPerPriority": Rule.READ,
    "getDependencyCounts": Rule.READ,
    "paginate": Rule.READ,
    "isJobInList": Rule.READ,
    "isMaxed": Rule.READ,
    "getState": Rule.READ,
    "getCounts": Rule.READ,
    "getStateV2": Rule.READ,
    "isFinished": Rule.READ,
    "getJobScheduler": Rule.READ,
    "fate": Rule.READ,
    "unknownClaims": Rule.READ,
    # --- the lease plane: jobs have ids given by their makers, and `spent` shows what a holder has let go
    "lease/take": Rule.CLAIM,
    "lease/claim": Rule.CLAIM,
    "lease/claimBatch": Rule.CLAIM,
    "lease/laneClaim": Rule.CLAIM,
    "lease/settle": Rule.FATE,
    "lease/complete": Rule.FATE,
    "lease/retry": Rule.FATE,
    "lease/delay": Rule.FATE,
    "lease/enqueue": Rule.BY_ID,
    "lease/schedule": Rule.BY_ID,
    "lease/laneEnqueue": Rule.BY_ID,
    "lease/addFlow": Rule.BY_ID,
    "lease/extendLock": Rule.REPEAT,
    "lease/extendLocks": Rule.REPEAT,
    "lease/renew": Rule.REPEAT,
    "lease/mark": Rule.REPEAT,
    # what was given back has left active, so a second run finds other jobs or none
    "lease/promote": Rule.REPEAT,
    "lease/reap": Rule.REPEAT,
    "lease/reapGroup": Rule.REPEAT,
    "lease/sweepStalled": Rule.REPEAT,
    "lease/recover": Rule.REPEAT,
    "lease/laneControl": Rule.REPEAT,
    "lease/laneReassign": Rule.REPEAT,
    "lease/laneDrain": Rule.REPEAT,
    "lease/drain": Rule.REPEAT,
    "lease/obliterate": Rule.REPEAT,
    "lease/updateData": Rule.REPEAT,
    "lease/updateProgress": Rule.REPEAT,
    "lease/addLog": Rule.TELL,
    "lease/removeJob": Rule.REPEAT,
    "lease/reprocessJob": Rule.TELL,  # the job may have run and died again meanwhile
    # a child counts by the first entry that names it; a signal is dropped only while it is at the head
    "lease/deliver": Rule.REPEAT,
    "lease/outboxTrim": Rule.REPEAT,
    "lease/repeatRegister": Rule.REPEAT,
    "lease/repeatUpsert": Rule.REPEAT,
    # fires only from the time that the caller read
    "lease/repeatFire": Rule.REPEAT,
    "lease/repeatCancel": Rule.REPEAT,
    "lease/open": Rule.REPEAT,
    "lease/reschedule": Rule.TELL,  # a job that was made ready is not delayed any more
    "lease/freeDedup": Rule.TELL,
    # a lock of ours is ours at the second asking, too
    "lease/guardAcquire": Rule.REPEAT,
    "lease/guardExtend": Rule.REPEAT,
    "lease/guardRenew": Rule.REPEAT,
    "lease/guardRelease": Rule.REPEAT,
    "lease/owned": Rule.READ,
    "lease/fate": Rule.READ,
    "lease/counts": Rule.READ,
    "lease/state": Rule.READ,
    "lease/isMaxed": Rule.READ,
    "lease/leases": Rule.READ,
    "lease/look": Rule.READ,
    "lease/repeatDue": Rule.READ,
    "lease/repeats": Rule.READ,
    "lease/jobs": Rule.READ,
    "lease/depths": Rule.READ,
}


@dataclass(frozen=True, slots=True)
class Fate:
    """What `fate` saw in one instant. `lock`: 0 none, 1 ours, 2 another token's."""

    lock: int
    exists: bool
    ats: int
    stc: int
    active: bool


class Verdict(Enum):
    """What became of a transition whose reply was lost."""

    REPEAT = "repeat"  # it did not run
    REACQUIRE = "reacquire"  # it did not run and the lock lapsed meanwhile
    DONE = "done"  # it ran
    LOST = "lost"  # it did not run, and the job was taken away from us


def judge(fate: Fate, *, ats: int, stc: int) -> Verdict:
    """Decides from the job's state now and from its `ats` and `stc` as we took it.

    Whoever takes a job from us without our doing counts a stall; our own transitions do not. And no
    transition leaves the job in active under the same number of takes.
    """
    if not fate.exists:
        return Verdict.DONE  # removed as its options ask
    same_take = fate.active and fate.ats == ats
    if fate.lock == 1 and same_take:
        return Verdict.REPEAT
    if same_take:
        return Verdict.REACQUIRE if fate.lock == 0 else Verdict.LOST
    return Verdict.DONE if fate.stc == stc else Verdict.LOST
