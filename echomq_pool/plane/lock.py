# SPDX-License-Identifier: MIT
"""The lock plane: BullMQ's layout, a lock key with a token for every job in `active`.

Every method is one script call. What makes this file more than a list of them is `_move`: a transition of a
held job that survives an outage, a lost reply and a lapsed lock, without ever being done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

from echomq_pool import backoff
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import (
    JobError,
    JobMissing,
    LeaseLost,
    LinkDown,
    LinkError,
    LinkRefused,
    ServerUnready,
)
from echomq_pool.ipc.messages import HeldJob
from echomq_pool.plane import codec, repeat, scheduling
from echomq_pool.plane.base import Blocking, HeldRow, Nothing, PlaneOptions, Recovery, Taken
from echomq_pool.plane.calls import ALL_STATES, Call, Calls
from echomq_pool.plane.codes import Code, check, error_of
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lease_desk import claim_plane
from echomq_pool.plane.lock_gather import Alone, Gatherer
from echomq_pool.plane.lock_replies import decode, fetched, taken
from echomq_pool.plane.probe import lockless
from echomq_pool.plane.repeat import Fate, Verdict
from echomq_pool.plane.slack import Pace
from echomq_pool.redisio.scripts import Script, ScriptLibrary

REFUSED_PAUSE_S = 1.0
UNREADY_PAUSE_S = 0.1  # the link backs off by itself; this keeps a refusing server from being asked in a spin
MANUAL_LIMIT = 9_007_199_254_740_991  # what BullMQ writes as "as many as ever will be"


class Asking(Protocol):
    """The part of a link that a plane uses."""

    @property
    def connected(self) -> bool: ...

    def call(
        self, *args: bytes | str | int | float, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]: ...

    def script(
        self, script: Script, keys: Sequence[bytes | str], args: Sequence[bytes | str | int | float]
    ) -> asyncio.Future[Any]: ...

    async def ready(self) -> None: ...


class LockPlane:
    """One queue on the lock plane. The Protocol and its rules are in `base.py`.

    Args:
        link: a connection of the caller; several planes may share it.
        keys: the queue.
        library: the scripts.
        options: what the scripts must know about the workers.
        clock: wall time for the wire.
        pace: how much a call is to carry; without one as much as it can.
    """

    kind: ClassVar[str] = "lock"
    promotes: ClassVar[bool] = True

    def __init__(
        self,
        link: Asking,
        keys: QueueKeys,
        library: ScriptLibrary,
        options: PlaneOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pace: Pace | None = None,
    ) -> None:
        self.keys = keys
        self.options = options or PlaneOptions()
        self._link = link
        self._library = library
        self._clock = clock
        self._calls = Calls(keys, self.options)
        self._gatherer = Gatherer(self._ask, self._calls, clock, pace or Pace())
        self._marker = keys.key("marker").encode()

    async def open(self) -> None:
        await claim_plane(self._link, self.keys.base, self.keys.key("meta"), self._library, self.kind)

    # --- claiming and settling

    async def take(self, token: str, *, quiet: bool = False) -> Taken | Nothing:
        while True:
            try:
                call = self._calls.take(token, self._clock.now_ms(), quiet=quiet)
                return decode(await self._ask(call), token)
            except ServerUnready:
                await asyncio.sleep(UNREADY_PAUSE_S)
            except (LinkDown, LinkRefused) as error:
                await self._reconnected(error)
                if isinstance(error, LinkDown) and error.sent:
                    claimed = (await self._fate("", token, 0))[1]
                    if claimed is not None:
                        return claimed

    async def complete(
        self, job: JobRecord, token: str, returnvalue: bytes, *, fetch: bool = False
    ) -> Taken | Nothing | None:
        doubt = False
        waiter = self._gatherer.add(job, token, returnvalue, fetch)
        if waiter is not None:
            try:
                answer = await waiter
            except LinkError as error:
                doubt = await self._doubted(error)
            else:
                if not isinstance(answer, Alone):
                    return answer
        call = self._calls.complete(job, token, returnvalue, self._clock.now_ms(), fetch)
        return fetched(await self._move(call, job, token, "complete", doubt=doubt), token, fetch)

    async def fail(
        self, job: JobRecord, token: str, reason: str, stacktrace: Sequence[str], *, fetch: bool = False
    ) -> Taken | Nothing | None:
        call = self._calls.fail(job, token, reason, stacktrace, self._clock.now_ms(), fetch)
        return fetched(await self._move(call, job, token, "fail"), token, fetch)

    async def retry(
        self, job: JobRecord, token: str, reason: str | None, stacktrace: Sequence[str] | None
    ) -> None:
        call = self._calls.retry(job, token, reason, stacktrace, self._clock.now_ms())
        await self._move(call, job, token, "retry")

    async def delay(
        self,
        job: JobRecord,
        token: str,
        delay_ms: float,
        *,
        skip_attempt: bool = False,
        reason: str | None = None,
        stacktrace: Sequence[str] | None = None,
        fetch: bool = False,
    ) -> Taken | Nothing | None:
        call = self._calls.delay(
            job,
            token,
            delay_ms,
            self._clock.now_ms(),
            skip_attempt=skip_attempt,
            reason=reason,
            stack=stacktrace,
            fetch=fetch,
        )
        return fetched(await self._move(call, job, token, "delay"), token, fetch)

    async def release(self, job: JobRecord, token: str) -> int:
        reply = await self._move(self._calls.release(job.id, token), job, token, "put back")
        return reply if isinstance(reply, int) else 0

    async def wait_children(self, job: JobRecord, token: str, child_key: str = "") -> bool:
        call = self._calls.wait_children(job.id, token, child_key, self._clock.now_ms())
        reply = await self._move(call, job, token, "move to waiting-children")
        return bool(reply != 1)

    # --- leases

    async def extend(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        return [codec.to_text(i) for i in await self._ask(self._calls.extend(pairs))] if pairs else []

    async def reacquire(self, rows: Sequence[HeldRow]) -> list[str]:
        return [codec.to_text(i) for i in await self._ask(self._calls.reacquire(rows))] if rows else []

    async def recover(
        self, owner: str, held: Sequence[HeldRow] = (), *, planned: bool, evidence: str = ""
    ) -> list[Recovery]:
        found: list[Recovery] = []
        while True:
            call = self._calls.recover(owner, held, planned, evidence, self._clock.now_ms())
            more, rows = await self._ask(call)
            found += [Recovery(codec.to_text(i), codec.to_text(where), int(stc)) for i, where, stc in rows]
            if not more:
                return found

    async def settle_for(self, held: HeldJob, how: str, text: str) -> str:
        job = await self.load(held.id)
        if job is None:
            return "gone"
        stack = job.stacktrace_with(text)
        delay = None if how == "cancel" else backoff.retry_delay(job.atm + 1, job.attempts, job.backoff)
        try:
            if delay is None:
                await self.fail(job, held.token, text, stack)
                return "failed"
            if delay > 0:
                await self.delay(job, held.token, delay, reason=text, stacktrace=stack)
                return "delayed"
            await self.retry(job, held.token, text, stack)
        except (LeaseLost, JobMissing):
            return "gone"
        return "wait"

    async def claimed_by(self, owner: str, job_id: str) -> Taken | None:
        token, job = await asyncio.gather(self._link.call("GET", self.keys.lock(job_id)), self.load(job_id))
        if job is None or token is None or not token.startswith(owner.encode() + b":"):
            return None
        return Taken(job, codec.to_text(token))

    async def unknown_claims(self, owner: str, known: Iterable[tuple[str, str]]) -> list[Taken]:
        rows = await self._ask(self._calls.unknown_claims(owner, list(known)))
        return [taken(job_id, codec.to_text(token), flat) for job_id, token, flat in rows]

    async def sweep(self, max_stalled: int | None = None, interval_ms: int | None = None) -> list[str]:
        limit = self.options.max_stalled_count if max_stalled is None else max_stalled
        interval = interval_ms or self.options.stalled_interval_ms
        reply = await self._ask(self._calls.sweep(limit, interval, self._clock.now_ms()))
        return [codec.to_text(i) for i in reply]

    async def probe(self) -> list[str]:
        return await lockless(self._link, self.keys)

    # --- schedulers

    async def produce_next(self, job: JobRecord) -> str | None:
        call = scheduling.advance(self.keys, job, self._clock.now_ms())
        reply = None if call is None else await self._ask(call)
        return None if reply is None else codec.to_text(reply)

    # --- waiting

    async def wait(self, blocking: Blocking, block_ms: float) -> int | None:
        reply = await blocking.blocking_call("BZPOPMIN", self._marker, block_ms=block_ms)
        if not reply:
            return None
        _, member, score = reply
        return 0 if codec.to_text(member) == "0" else int(float(score))

    def wake(self) -> asyncio.Future[Any]:
        return self._link.call("ZADD", self._marker, 0, "0")

    # --- what a processor does with its job

    async def progress(self, job_id: str, progress: bytes) -> None:
        check(await self._ask(self._calls.progress(job_id, progress)), job_id, "update the progress of")

    async def log(self, job_id: str, row: str, keep: int | None = None) -> int:
        reply = await self._ask(self._calls.log(job_id, row, keep))
        check(reply, job_id, "log for")
        return int(reply)

    async def update_data(self, job_id: str, data: bytes) -> None:
        check(await self._ask(self._calls.update_data(job_id, data)), job_id, "update the data of")

    async def rate_limit(self, duration_ms: int) -> None:
        await self._link.call("SET", self.keys.key("limiter"), MANUAL_LIMIT, "PX", max(1, duration_ms))

    # --- reading

    async def state(self, job_id: str) -> str:
        return codec.to_text(await self._ask(self._calls.state(job_id)))

    async def load(self, job_id: str) -> JobRecord | None:
        flat = await self._link.call("HGETALL", self.keys.job(job_id))
        return JobRecord.from_flat(job_id, flat) if flat else None

    async def counts(self, *names: str) -> dict[str, int]:
        wanted = names or ALL_STATES
        return dict(zip(wanted, await self._ask(self._calls.counts(wanted)), strict=True))

    # --- how a call is made

    def ask(
        self, script: str, keys: Sequence[bytes | str], args: Sequence[bytes | str | int | float]
    ) -> asyncio.Future[Any]:
        return self._link.script(self._library[script], keys, args)

    def command(self, *args: bytes | str | int | float) -> asyncio.Future[Any]:
        return self._link.call(*args)

    def _ask(self, call: Call) -> asyncio.Future[Any]:
        return self._link.script(self._library[call.script], call.keys, call.args)

    async def _move(self, call: Call, job: JobRecord, token: str, action: str, *, doubt: bool = False) -> Any:
        """Sends a transition until it is known to have happened once, or to be impossible.

        Returns the reply; a `Taken` where the reply was lost but the next job of ours was found, None where
        it was lost and there is none. `doubt`: it was sent before, in a batch whose reply was lost.
        """
        reacquired, unasked = False, doubt
        while True:
            try:
                reply = Code.NO_LOCK if unasked else await self._ask(call)
                unasked = False
            except ServerUnready:
                await asyncio.sleep(UNREADY_PAUSE_S)
                continue
            except (LinkDown, LinkRefused) as error:
                await self._reconnected(error)
                if isinstance(error, LinkRefused) or not error.sent:
                    continue
                doubt, reply = True, Code.NO_LOCK
            if doubt and reply in _NOT_OURS:
                verdict, claimed = await self._resolve(job, token)
                if verdict is Verdict.DONE:
                    return claimed
                if verdict is Verdict.LOST:
                    raise error_of(Code.OTHER_LOCK, job.id, action)
                if verdict is Verdict.REPEAT:
                    continue
            if reply == Code.NO_LOCK and not reacquired:
                reacquired = True
                if await self._reacquired(job, token):
                    continue
            if isinstance(reply, int) and reply < 0:
                raise await self._refusal(reply, job.id, action)
            return reply

    async def _doubted(self, error: LinkError) -> bool:
        """Waits out what broke a batch. Whether it may have run, in part where the server broke it off."""
        if isinstance(error, ServerUnready):
            await asyncio.sleep(UNREADY_PAUSE_S)
            return False
        if isinstance(error, LinkDown | LinkRefused):
            await self._reconnected(error)
            return isinstance(error, LinkDown) and error.sent
        return True

    async def _resolve(self, job: JobRecord, token: str) -> tuple[Verdict, Taken | None]:
        fate, claimed = await self._fate(job.id, token, job.ats)
        assert fate is not None
        return repeat.judge(fate, ats=job.ats, stc=job.stc), claimed

    async def _fate(self, job_id: str, token: str, ats: int) -> tuple[Fate | None, Taken | None]:
        """What became of a job and whether another came under its token. Insists until the server answers."""
        call = self._calls.fate(job_id, token, ats)
        while True:
            try:
                lock, exists, seen_ats, stc, active, next_id, flat = await self._ask(call)
            except ServerUnready:
                await asyncio.sleep(UNREADY_PAUSE_S)
            except (LinkDown, LinkRefused) as error:
                await self._reconnected(error)
            else:
                fate = (
                    Fate(int(lock), bool(exists), int(seen_ats), int(stc), bool(active)) if job_id else None
                )
                return fate, taken(next_id, token, flat) if next_id else None

    async def _reacquired(self, job: JobRecord, token: str) -> bool:
        while True:
            try:
                return not await self.reacquire([HeldRow(job.id, token, job.ats)])
            except ServerUnready:
                await asyncio.sleep(UNREADY_PAUSE_S)
            except (LinkDown, LinkRefused) as error:
                await self._reconnected(error)

    async def _reconnected(self, error: LinkDown | LinkRefused) -> None:
        """Waits out the loss of the link, a password that is being changed included.

        Raises:
            LinkRefused: the server refused the command itself, on a good connection.
            LinkDown: the link was closed.
        """
        if isinstance(error, LinkRefused) and self._link.connected:
            raise error
        while True:
            try:
                return await self._link.ready()
            except LinkRefused:
                await asyncio.sleep(REFUSED_PAUSE_S)

    async def _refusal(self, code: int, job_id: str, action: str) -> JobError:
        found = await self.state(job_id) if code == Code.NOT_IN_STATE else ""
        expected = "active" if code == Code.NOT_IN_STATE else ""
        return error_of(code, job_id, action, expected=expected, found=found)


# After a lost reply these may be the echo of our own first call, which ran after all.
_NOT_OURS = (Code.MISSING, Code.NO_LOCK, Code.OTHER_LOCK)
