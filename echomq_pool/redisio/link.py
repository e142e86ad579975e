# SPDX-License-Identifier: MIT
"""One connection that is kept: it connects, greets, loads scripts, notices loss, starts again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, LinkDown, LinkError, LinkRefused, ServerUnready
from echomq_pool.redisio.address import Address
from echomq_pool.redisio.blocking import with_timeout
from echomq_pool.redisio.boot import Greeting, greet, load_scripts, open_wire
from echomq_pool.redisio.cluster import Nodes, find_owner
from echomq_pool.redisio.pace import pause_ms
from echomq_pool.redisio.protocol import Arg, Call, Kind, Wire, fail, pack
from echomq_pool.redisio.replies import Action, ErrorReply, Verdict, classify, target_of
from echomq_pool.redisio.scripts import ScriptLibrary
from echomq_pool.redisio.sentinel import find_master
from echomq_pool.redisio.state import CANCELLED, LinkState, ServerInfo, Teller
from echomq_pool.redisio.traffic import Traffic, calling_back

STEADY_MS = (
    5_000  # a connection that lived so long was a good one: the next loss starts with the shortest pause
)
MAX_HOPS = 5  # redirections followed without a pause
_ASKING = pack(("ASKING",))


class Link(Traffic):
    """One reconnecting, pipelining connection. `call` and `script` are the callers' side (see `Traffic`).

    Args:
        config: where and how; `command_timeout_ms` is the patience of a call that names none.
        name: client name on the server (set again after every reconnect) and in log lines.
        scripts: loaded at every connect.
        on_connect: runs after every connect, before any waiting call is sent; calls that it makes go out at
            once. If it raises, the connection is given up and made anew.
        on_state: told every change of `state`; must not block.
        blocking: this link waits in the server (`blocking_call`), one call at a time.
        slot_key: with `config.cluster`, a key of the queue: the link goes to the node that serves its slot.
        margin_ms: how long after a blocking timeout the answer may come; more than a round trip.
        max_queued: calls that may wait for a connection.
    """

    def __init__(
        self,
        config: RedisConfig,
        *,
        name: str = "",
        clock: Clock = SYSTEM_CLOCK,
        scripts: ScriptLibrary | None = None,
        on_connect: Callable[[Link], Awaitable[None] | None] | None = None,
        on_state: Callable[[LinkState], None] | None = None,
        blocking: bool = False,
        slot_key: bytes | str | None = None,
        margin_ms: int = 1_000,
        max_queued: int = 50_000,
    ) -> None:
        super().__init__(clock, config.command_timeout_ms, max_queued)
        self._config = config
        self._name = name
        self._scripts = scripts
        self._on_connect = on_connect
        self._blocking = blocking
        self._slot_key = slot_key
        self._margin = margin_ms
        self._nodes = Nodes()
        self._address = Address.from_config(config)
        self._hops = 0
        self._couriers: dict[tuple[str, int], Link] = {}
        self._courier_for: Link | None = None
        self._client_id: int | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._teller = Teller(name or str(self._address), clock, on_state)
        self.server = ServerInfo()
        self.state = LinkState(False, self._down_detail)

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts connecting in the background and returns at once."""
        self._loop = asyncio.get_running_loop()
        self._keeper = self._loop.create_task(self._keep(), name=f"link {self._name}")

    async def close(self) -> None:
        """Ends the link for good. Every call that waits fails with LinkDown; nothing is left running."""
        if self._closed:
            return
        self._closed = True
        error = LinkDown("the link is closed", sent=True)
        if self._wire is not None:
            self._wire.abort(error)
        self._fail_queue(LinkDown("the link is closed", sent=False))
        self._wake_waiters(error)
        self._teller.quiet = True
        for timer in (self._timer, self._again_timer, self._condition_timer):
            if timer is not None:
                timer.cancel()
        for courier in self._couriers.values():
            await courier.close()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._report("closed")

    @property
    def connected(self) -> bool:
        """Callers' commands go out at once."""
        return self._up

    @property
    def client_id(self) -> int | None:
        """The server's number for this connection; None when not connected or when it would not say."""
        return self._client_id

    async def ready(self) -> None:
        """Waits until connected, however long that takes.

        Raises:
            LinkRefused: the server turned us away just now; the link goes on trying all the same.
            LinkDown: the link was closed.
        """
        if self._up:
            return
        if self._closed:
            raise LinkDown("the link is closed", sent=False)
        self._waiters = [waiter for waiter in self._waiters if not waiter.done()]
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    # --- blocking calls -----------------------------------------------------------------------------

    async def blocking_call(self, *args: Arg, block_ms: float) -> Any:
        """Runs a command that waits in the server. Give `args` WITHOUT the timeout: it is put in here.

        For example `("BZPOPMIN", key, block_ms=5000)` or `("XREAD", "STREAMS", key, "$", block_ms=5000)`.
        The timeout sent is never 0. Returns None when it ran out, also when the server ended the wait
        (UNBLOCKED). Cancelling it drops the connection, so that nothing is popped for a caller who has gone.

        Raises:
            LinkDown: `sent=False`: no connection within the command timeout; `sent=True`: it broke or went
                silent (no answer `margin_ms` after the timeout).
            ServerUnready, LinkRefused, ReplyError: as for `call`.
        """
        give_up = self._clock.mono_ms() + self._patience
        attempt = 0
        while True:
            await self._connected_by(give_up)
            try:
                return await self._block(args, block_ms)
            except ServerUnready as error:
                if error.code == "UNBLOCKED":
                    return None
                if self._clock.mono_ms() >= give_up:
                    raise
            await asyncio.sleep(pause_ms(attempt) / 1_000)
            attempt += 1

    async def _connected_by(self, at_ms: int) -> None:
        try:
            async with asyncio.timeout(max(0, at_ms - self._clock.mono_ms()) / 1_000):
                await self.ready()
        except TimeoutError:
            if self._condition:
                raise ServerUnready(self._condition, f"the server kept answering {self._condition}") from None
            raise LinkDown(f"not sent in time: {self._down_detail}", sent=False) from None

    async def _block(self, args: tuple[Arg, ...], block_ms: float) -> Any:
        wire = self._wire
        if wire is None or not self._up:
            raise LinkDown(f"not sent: {self._down_detail}", sent=False)
        if any(call.kind is Kind.BLOCKED for call in wire.in_flight):
            raise InputError("a blocking link carries one call at a time")
        assert self._loop is not None
        data = pack(with_timeout(args, block_ms, self.server))
        wait_ms = int(max(block_ms, self.server.min_block_ms)) + self._margin
        limit = self._clock.mono_ms() + wait_ms
        call = Call(self._loop.create_future(), data, limit, limit, kind=Kind.BLOCKED)
        wire.send([call])
        if limit < self._timer_at:
            self._set_timer(limit)
        try:
            return await call.future
        except asyncio.CancelledError:
            if call in wire.in_flight:
                wire.abort(LinkDown(CANCELLED, sent=True))
            raise

    # --- keeping connected --------------------------------------------------------------------------

    async def _keep(self) -> None:
        """The one task of a link: connect, wait for the loss, pause, again."""
        attempt = 0
        while not self._closed:
            self._lost.clear()
            since = self._clock.mono_ms()
            try:
                await self._connect()
            except LinkError as error:
                self._failed(error)
            except Exception as error:
                # on_connect is foreign code; whatever it raises must not end the link.
                self._teller.trouble("preparing the connection failed")
                self._failed(LinkDown(f"preparing the connection failed: {error!r}", sent=False))
            else:
                await self._lost.wait()
                if self._clock.mono_ms() - since >= STEADY_MS:
                    attempt = self._hops = 0
            if 0 < self._hops <= MAX_HOPS:
                continue
            await asyncio.sleep(pause_ms(attempt) / 1_000)
            attempt += 1

    async def _connect(self) -> None:
        self._address = await self._locate()
        wire = await open_wire(self, self._address, self._config.connect_timeout_ms)
        if wire.lost is not None:
            raise wire.lost
        self._wire = wire
        try:
            greeting = await self._boot(wire)
            if wire.lost is not None:
                raise wire.lost
        except BaseException:
            wire.abort(LinkDown("the connection was given up before its first use", sent=True))
            raise
        self._go_up(wire, greeting)

    async def _locate(self) -> Address:
        """Where to connect this time; names and sentinels are asked anew at every attempt."""
        address = Address.from_config(self._config)
        if self._config.sentinels:
            timeout_ms = self._config.connect_timeout_ms
            found = await find_master(self._config.sentinels, self._config.master, timeout_ms)
            return address.at(*found)
        node = self._nodes.next() if self._config.cluster else None
        return address.at(*node) if node else address

    async def _boot(self, wire: Wire) -> Greeting:
        def ask(commands: Any) -> list[asyncio.Future[Any]]:
            return self._ask_all(wire, commands, self._config.connect_timeout_ms)

        # After READONLY a replica is not good enough; before that it might be a writable one.
        want_master = bool(self._config.sentinels) or self._condition == "READONLY"
        greeting = await greet(ask, self._address, self._name, want_master=want_master)
        if self._config.cluster:
            owner, nodes = await find_owner(ask, self._slot_key)
            self._nodes.learn(nodes)
            if owner is not None:
                self._point(owner)
                raise LinkDown(f"{self._address} does not serve the slot of this queue", sent=False)
            self._nodes.settled((self._address.host, self._address.port))
        if self._scripts is not None:
            await load_scripts(ask, self._scripts)
        self.server, self._client_id = greeting.info, greeting.client_id
        if self._on_connect is not None:
            await self._call_back(wire, self._on_connect)
        return greeting

    async def _call_back(self, wire: Wire, callback: Callable[[Link], Awaitable[None] | None]) -> None:
        token = calling_back.set(wire)
        try:
            result = callback(self)
            if inspect.isawaitable(result):
                await result
        finally:
            calling_back.reset(token)

    def _go_up(self, wire: Wire, greeting: Greeting) -> None:
        if wire.leaving is not None:
            return
        self._up = True
        self._hops = 0
        self._refused = None
        self._condition = ""  # the server answered PING; what still holds will be met again
        for call in self._queue:
            self._refresh(call)
        self._report(f"connected to {self._address} ({greeting.info}, client id {greeting.client_id})")
        self._wake_waiters(None)
        self._flush()

    def _failed(self, error: LinkError) -> None:
        """An attempt to connect came to nothing."""
        self._down_detail = str(error)
        self._refused = error if isinstance(error, LinkRefused) else None
        if isinstance(error, ServerUnready):
            self._condition = error.code
        elif self._condition != "READONLY":  # kept: it makes the next boot look for the master
            self._condition = ""
        if self._refused is not None:
            self._fail_queue(self._refused)
            self._wake_waiters(self._refused)
        self._report(self._down_detail)

    def on_lost(self, wire: Wire) -> None:
        """The wire is gone (Owner)."""
        if wire is not self._wire:
            return
        was_up, self._up, self._wire, self._client_id = self._up or wire.leaving, False, None, None
        self._fail_early(LinkDown(str(wire.lost), sent=False))
        self._reloading.clear()
        if was_up and not self._closed:
            self._down_detail = str(wire.lost)
            self._report(self._down_detail)
        self._lost.set()

    def on_writable(self) -> None:
        """The socket takes bytes again (Owner)."""
        if not self._armed and self._queue:
            self._arm()

    def _wake_waiters(self, error: LinkError | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if error is not None:
                fail(waiter, error)
            elif not waiter.done():
                waiter.set_result(None)

    # --- cluster ------------------------------------------------------------------------------------

    def _point(self, node: tuple[str, int]) -> None:
        self._hops += 1
        self._nodes.point((node[0] or self._address.host, node[1]))

    def _elsewhere(self, wire: Wire, call: Call, verdict: Verdict, text: str) -> None:
        """MOVED: go there. ASK: let a courier carry this one call there."""
        if not self._config.cluster:
            fail(call.future, LinkRefused(verdict.sentence))
            return
        host, port = target_of(text)
        if verdict.action is Action.ASK:
            if call.kind is Kind.NORMAL:
                self._courier((host or self._address.host, port))._carry(call)
            else:
                fail(call.future, ServerUnready("ASK", verdict.sentence))
            return
        if wire.leaving is None:
            self._point((host, port))
        self._leave(wire, LinkDown(f"the slot moved to port {port} of {host or 'the same host'}", sent=True))
        self._requeue(call, verdict)

    def _courier(self, node: tuple[str, int]) -> Link:
        """A second link, to the node that takes over our slot; kept until we close."""
        if node not in self._couriers:
            config = replace(self._config, host=node[0], port=node[1], unix_path="", cluster=False)
            courier = Link(config, name=self._name, clock=self._clock, scripts=self._scripts)
            courier._courier_for = self
            courier._loop = self._loop
            assert self._loop is not None
            courier._keeper = self._loop.create_task(courier._keep(), name=f"courier {self._name}")
            self._couriers[node] = courier
        return self._couriers[node]

    def _carry(self, call: Call) -> None:
        assert self._loop is not None
        asking = Call(self._loop.create_future(), _ASKING, call.deadline, call.limit, kind=Kind.RAW)
        self._queue += [asking, call]
        self._set_timer(min(self._timer_at, call.deadline))
        if not self._armed:
            self._arm()

    def on_error_reply(self, wire: Wire, call: Call, reply: ErrorReply) -> None:
        """As in `Traffic`; a courier gives the call back, since repeating it here would need ASKING again."""
        master = self._courier_for
        if master is not None and call.kind is Kind.NORMAL:
            verdict = classify(reply)
            if verdict.action not in (Action.FAIL, Action.REFUSE, Action.RELOAD):
                master._repeat(call, verdict)
                return
        super().on_error_reply(wire, call, reply)

    def _report(self, detail: str) -> None:
        new = LinkState(self._up, detail, self._client_id, str(self.server), self._condition)
        if new != self.state:
            old, self.state = self.state, new
            self._teller.tell(old, new, refused=self._refused is not None)
