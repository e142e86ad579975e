# SPDX-License-Identifier: MIT
"""Slow, stopped or stuck? A judge over beats and two looks at the main thread, at least a second apart.

A beat is written by the loop that does the work, so silence means that this loop does not turn. Why it does
not is read from /proc/<pid>/task/<pid>/, the thread that the loop runs in:

    R, or cpu time or context switches rise   busy (a job hogs the loop or the GIL): leave, warn
    S in any other system call, or D          waits for the outside world: leave, warn
    S in futex, nothing moves                 hung on a lock: dump its stacks, then kill
    S in epoll, nothing moves                 idle, so its beat is broken: our bug, replace it
    T                                         stopped by someone: SIGCONT once, then kill
    unreadable                                leave, warn

Past a job's time limit plus a grace (the board's deadline word, the net under the worker's own timers):
overdue, kill. All beats stale at once: the machine slept; a round is skipped and nobody is killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

APART_MS: Final = 1_000
OVERDUE_MS: Final = 500
TIMED_POLL_MS: Final = 250
_MOVING_CPU: Final = 0.02  # share of one core
_STILL_SWITCHES: Final = 2  # a signal that arrives may cost a switch or two

_FUTEX: Final = {"x86_64": {202, 449}, "aarch64": {98, 449}}.get(os.uname().machine, {449})
_EPOLL: Final = {"x86_64": {232, 281, 441}, "aarch64": {22, 441}}.get(os.uname().machine, {441})

Act = Literal["none", "warn", "recycle", "cont", "abort", "kill"]


class State(StrEnum):
    """What the judge sees in a child whose beat is stale."""

    BUSY = "busy"
    OUTSIDE = "outside"
    HUNG = "hung"
    IDLE = "idle"
    STOPPED = "stopped"
    UNREADABLE = "unreadable"
    OVERDUE = "overdue"


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at a main thread. `syscall` -1 = running, None = unreadable; `wchan` "" likewise."""

    status: str  # R S D T t Z …
    cpu_ms: int
    switches: int  # voluntary and involuntary
    syscall: int | None = None
    wchan: str = ""


@dataclass(frozen=True, slots=True)
class Watched:
    """A child that has acked, as the board shows it now. Times are monotonic ms."""

    handle: int
    pid: int
    beat_ms: int
    limit_ms: int  # hang_timeout, or what this child is granted
    deadline_ms: int = 0  # earliest job deadline, 0 = none
    timed: bool = False  # its jobs may have time limits, so its deadline word is worth polling
    warn_ms: int = 30_000  # at most one warning per so long (lock_duration)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is the matter with one child, and what to do.

    `act`: "warn" = log `text` and send SIGUSR2, which prints its stacks; "recycle" = replace it in order;
    "cont" = SIGCONT; "abort" = SIGABRT, and SIGKILL 2 s later; "kill" = SIGKILL; "none" = known already.
    """

    handle: int
    state: State
    act: Act
    text: str
    silent_ms: int = 0


@dataclass(slots=True)
class _Suspect:
    """What is remembered about a silent child between two looks."""

    at_ms: int
    facts: Facts | None
    warned_ms: int | None = None
    continued: bool = False
    done: bool = False  # a verdict that ends it has been given


@dataclass(slots=True)
class Watchdog:
    """Call `look` at `next_look_ms` (and whenever convenient) with every child that has acked.

    Pure but for `sample`; holds memory only for children that are silent.
    """

    sample: Callable[[int], Facts | None] = field(default_factory=lambda: look_at)
    next_look_ms: int = 0
    skipping_until_ms: int = 0
    slept: bool = False
    _suspects: dict[int, _Suspect] = field(default_factory=dict)

    def look(self, now_ms: int, watched: Sequence[Watched]) -> list[Verdict]:
        """Verdicts about children that need one now."""
        self._forget(watched)
        overdue = [v for w in watched if (v := self._overdue(now_ms, w)) is not None]
        verdicts = [] if self._machine_slept(now_ms, watched) else self._judge_all(now_ms, watched)
        self.next_look_ms = self._next(now_ms, watched)
        return overdue + verdicts

    def _forget(self, watched: Sequence[Watched]) -> None:
        living = {w.handle for w in watched}
        for handle in [h for h in self._suspects if h not in living]:
            del self._suspects[handle]

    def _overdue(self, now_ms: int, w: Watched) -> Verdict | None:
        if not w.deadline_ms or now_ms < w.deadline_ms + OVERDUE_MS:
            return None
        suspect = self._suspects.setdefault(w.handle, _Suspect(now_ms, None))
        if suspect.done:
            return None
        suspect.done = True
        late = now_ms - w.deadline_ms
        return Verdict(w.handle, State.OVERDUE, "kill", f"a job is {late} ms over its time limit")

    def _machine_slept(self, now_ms: int, watched: Sequence[Watched]) -> bool:
        stale = [w for w in watched if now_ms - w.beat_ms >= w.limit_ms]
        if len(watched) < 2 or len(stale) < len(watched):
            self.slept = False
            return False
        if not self.slept:  # once per sleep: if they all stay silent, they are all to blame
            self.slept = True
            self.skipping_until_ms = now_ms + max(w.limit_ms for w in watched) // 2
        return now_ms < self.skipping_until_ms

    def _judge_all(self, now_ms: int, watched: Sequence[Watched]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for w in watched:
            age = now_ms - w.beat_ms
            if age < max(0, w.limit_ms - APART_MS):
                self._recovered(w)
            elif (verdict := self._suspect(now_ms, w, age)) is not None:
                verdicts.append(verdict)
        return verdicts

    def _recovered(self, w: Watched) -> None:
        suspect = self._suspects.get(w.handle)
        if suspect is not None and not suspect.done:
            del self._suspects[w.handle]

    def _suspect(self, now_ms: int, w: Watched, age: int) -> Verdict | None:
        suspect = self._suspects.get(w.handle)
        if suspect is None:
            self._suspects[w.handle] = _Suspect(now_ms, self.sample(w.pid))
            return None
        if suspect.done or age < w.limit_ms or now_ms - suspect.at_ms < APART_MS:
            return None
        first, second = suspect.facts, self.sample(w.pid)
        state = judge(first, second, now_ms - suspect.at_ms)
        suspect.at_ms, suspect.facts = now_ms, second
        return self._verdict(now_ms, w, suspect, state, age)

    def _verdict(self, now_ms: int, w: Watched, suspect: _Suspect, state: State, age: int) -> Verdict:
        act = self._act(now_ms, w, suspect, state)
        suspect.done = act in ("abort", "kill", "recycle")
        if act == "cont":
            suspect.continued = True
        if act == "warn":
            suspect.warned_ms = now_ms
        text = f"silent for {age} ms: {_WORDS[state]}"
        return Verdict(w.handle, state, act, text, age)

    def _act(self, now_ms: int, w: Watched, suspect: _Suspect, state: State) -> Act:
        if state is State.HUNG:
            return "abort"
        if state is State.IDLE:
            return "recycle"
        if state is State.STOPPED:
            return "kill" if suspect.continued else "cont"
        fresh = suspect.warned_ms is None or now_ms - suspect.warned_ms >= w.warn_ms
        return "warn" if fresh else "none"

    def _next(self, now_ms: int, watched: Sequence[Watched]) -> int:
        """The earliest moment at which something can have changed for the worse."""
        times = [now_ms + 10_000_000]
        for w in watched:
            suspect = self._suspects.get(w.handle)
            if suspect is not None and not suspect.done:
                times.append(max(suspect.at_ms + APART_MS, w.beat_ms + w.limit_ms, now_ms + TIMED_POLL_MS))
            elif suspect is None:
                times.append(max(w.beat_ms + w.limit_ms - APART_MS, now_ms + TIMED_POLL_MS))
            if w.timed:
                times.append(now_ms + TIMED_POLL_MS)
        return max(min(times), now_ms + 1)


_WORDS: Final = {
    State.BUSY: "its main thread is busy",
    State.OUTSIDE: "its main thread waits in a system call",
    State.HUNG: "its main thread hangs on a lock",
    State.IDLE: "its loop idles but does not beat",
    State.STOPPED: "it was stopped by a signal",
    State.UNREADABLE: "its state cannot be read",
    State.OVERDUE: "overdue",
}


def judge(first: Facts | None, second: Facts | None, apart_ms: int) -> State:
    """The state of a main thread between two looks. Pure."""
    if first is None or second is None:
        return State.UNREADABLE
    if second.status == "T":
        return State.STOPPED
    if second.status in "DtXZ":  # disk, a debugger, already dying: not for us to end
        return State.OUTSIDE
    moved = second.cpu_ms - first.cpu_ms >= _MOVING_CPU * apart_ms
    switched = second.switches - first.switches > _STILL_SWITCHES
    if moved or switched or second.status == "R" or second.syscall == -1:
        return State.BUSY
    return _waits_for(second)


def _waits_for(facts: Facts) -> State:
    if facts.syscall is not None:
        if facts.syscall in _FUTEX:
            return State.HUNG
        return State.IDLE if facts.syscall in _EPOLL else State.OUTSIDE
    if not facts.wchan:
        return State.UNREADABLE
    if facts.wchan.startswith("futex"):
        return State.HUNG
    return State.IDLE if facts.wchan.startswith(("ep_poll", "do_epoll")) else State.OUTSIDE


def look_at(pid: int) -> Facts | None:
    """The facts about the main thread of `pid` now; None when even its status cannot be read."""
    task = Path(f"/proc/{pid}/task/{pid}")
    try:
        fields = _status(task)
        cpu_ms = int((task / "schedstat").read_text().split()[0]) // 1_000_000
    except (OSError, ValueError, IndexError):
        return _without_schedstat(task)
    return _facts(task, fields, cpu_ms)


def _without_schedstat(task: Path) -> Facts | None:
    try:
        fields = _status(task)
        ticks = (task / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
    except (OSError, ValueError, IndexError):
        return None
    return _facts(task, fields, sum(map(int, ticks)) * 1000 // os.sysconf("SC_CLK_TCK"))


def _facts(task: Path, fields: dict[str, str], cpu_ms: int) -> Facts:
    switches = sum(
        int(fields.get(name, "0")) for name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    )
    return Facts(fields.get("State", "?")[:1], cpu_ms, switches, _syscall(task), _wchan(task))


def _status(task: Path) -> dict[str, str]:
    lines = (task / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _syscall(task: Path) -> int | None:
    """The number of the system call it sleeps in, -1 when it runs; needs the right to trace it."""
    try:
        word = (task / "syscall").read_text().split()[0]
        return -1 if word == "running" else int(word)
    except (OSError, ValueError, IndexError):
        return None


def _wchan(task: Path) -> str:
    with contextlib.suppress(OSError):
        name = (task / "wchan").read_text().strip()
        return "" if name == "0" else name
    return ""
