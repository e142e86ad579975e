# SPDX-License-Identifier: MIT
"""The lease of plain functions outside of jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from echomq_pool.api.ask import library
from echomq_pool.api.guard_view import (
    RENEWALS,
    RETRY,
    TTL,
    LeaseView,
    asked,
    call_on_lost,
    pace_s,
    ttl_of,
    wait_of,
)
from echomq_pool.api.queue import server_of
from echomq_pool.api.sync_driver import SyncDriver, client_of, shared
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import LinkError
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import Guard, GuardKeys

log = logging.getLogger("echomq.lease")


class SyncLease(LeaseView):
    """`Lease` for plain functions. In `with` a thread of its own renews it; after a bare `acquire` call `renew`.

    What keeps the GIL for longer than `ttl` can lose it; `lost` then says so.

    Args:
        client: a client of redis-py (bytes in, bytes out) to share; the lease then leaves it open.
        on_lost: called in the renewing thread.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str = "",
        ttl: str = TTL,
        wait: str | int | None = None,
        prefix: str = "emq",
        redis: RedisConfig | None = None,
        on_lost: Callable[[], None] | None = None,
        client: Any = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        keys = GuardKeys(prefix)
        super().__init__(Guard(name, ttl_of(ttl), keys, clock))
        wait_of(wait)
        self._wait = wait
        self._clock = clock
        self._on_lost = on_lost
        self._own_client = client is None
        found = client_of(redis or server_of(url)) if client is None else shared(client)
        self._client = found.at(keys.fence)
        self._driver = SyncDriver(self._client, library())
        self._end = threading.Event()
        self._keeping: threading.Thread | None = None

    def acquire(self, wait: object = ...) -> bool:
        """See `Lease.acquire`. Blocks this thread while it waits."""
        patience = wait_of(self._wait if wait is ... else wait)
        with self._one_at_a_time():
            return self._tried(patience)

    def _tried(self, patience: int | None) -> bool:
        give_up = None if patience is None else self._clock.mono_ms() + patience
        tries = 0
        while not self._try():
            left = None if give_up is None else give_up - self._clock.mono_ms()
            if left is not None and left <= 0:
                self._guard.forget()
                self._disconnect()
                return False
            time.sleep(pace_s(tries, left))
            tries += 1
        return True

    def renew(self) -> bool:
        """See `Lease.renew`."""
        if not self._guard.taken:
            return False
        sent_ms = self._clock.mono_ms()
        return self._guard.extended(bool(self._ask(self._guard.extending())), sent_ms)

    def release(self) -> bool:
        """See `Lease.release`."""
        self._stop_keeping()
        if not self._guard.token:
            return False
        call = self._guard.releasing()
        self._guard.forget()
        try:
            return bool(self._ask(call))
        finally:
            if self._own_client:
                self._client.close()  # the next call connects anew

    def __enter__(self) -> SyncLease:
        """Raises:
        LeaseTaken: somebody has it, and still had it after the wait.
        """
        if not self.acquire():
            raise self._taken()
        self._end.clear()
        self._keeping = threading.Thread(target=self._keep, name=f"lease {self.name}", daemon=True)
        self._keeping.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LinkError as failure:
            log.warning("lease %s was not given back and ends by itself: %s", self.name, failure)

    def _disconnect(self) -> None:
        if self._own_client:
            self._client.close()  # the next call connects anew

    def _ask(self, call: Call) -> int:
        return int(self._driver.run(asked(call)))

    def _try(self) -> bool:
        sent_ms = self._clock.mono_ms()
        return self._guard.acquired(self._ask(self._guard.acquiring()), sent_ms)

    def _stop_keeping(self) -> None:
        thread, self._keeping = self._keeping, None
        self._end.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _keep(self) -> None:
        """Renews until it is gone for good."""
        told = False
        pause_ms = self.ttl_ms / RENEWALS
        while not self._end.wait(pause_ms / 1000):
            pause_ms = self.ttl_ms / (RENEWALS if self._renewed() else RETRY)
            if self.lost and not told:
                told = True
                log.warning("lease %s may be another's now", self.name)
                call_on_lost(self._on_lost, self.name)
            if self._guard.gone:
                return

    def _renewed(self) -> bool:
        try:
            return self.renew()
        except LinkError as failure:
            log.info("lease %s was not renewed: %s", self.name, failure)
            return False
