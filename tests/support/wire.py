# SPDX-License-Identifier: MIT
"""Calls the scripts as a client does, with redis-py and msgpack, and reads back every key of one queue.

It is written from the protocol page and shares no code with the planes, so that a mistake in one shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgpack
import redis

from echomq_pool.redisio.scripts import ScriptLibrary, load_library

NOW = 1_795_981_509_000  # ms; an arbitrary moment, so that tables of keys can be written down

LIBRARY: ScriptLibrary = load_library("lock")

Dump = dict[str, Any]


def text(value: Any) -> Any:
    """Bytes to text, in lists, too; anything else as it is."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return [text(item) for item in value]
    return value


def dump(client: redis.Redis, base: str = "") -> Dump:
    """Every key that starts with `base`, without it, and its value by type.

    Strings are str, lists list, sets sorted lists, sorted sets {member: score}, hashes dict, streams a list of
    `fields` without their ids.
    """
    pattern = base.replace("[", "\\[") + "*"
    keys = [text(key) for key in client.scan_iter(match=pattern, count=1000)]
    return {key[len(base) :]: value for key, value in zip(keys, values_of(client, keys), strict=True)}


def value_of(client: Any, key: str) -> Any:
    """A key's value by its type; None when there is none."""
    return values_of(client, [key])[0]


def values_of(client: Any, keys: list[str]) -> list[Any]:
    """In two round trips, however many there are."""
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        kinds = [text(kind) for kind in pipe.execute()]
        there = [(key, kind) for key, kind in zip(keys, kinds, strict=True) if kind != "none"]
        for key, kind in there:
            READ[kind](pipe, key)
        replies = pipe.execute()
    found = {key: SHOWN[kind](reply) for (key, kind), reply in zip(there, replies, strict=True)}
    return [found.get(key) for key in keys]


READ: dict[str, Callable[[Any, str], Any]] = {
    "string": lambda pipe, key: pipe.get(key),
    "list": lambda pipe, key: pipe.lrange(key, 0, -1),
    "set": lambda pipe, key: pipe.smembers(key),
    "zset": lambda pipe, key: pipe.zrange(key, 0, -1, withscores=True),
    "hash": lambda pipe, key: pipe.hgetall(key),
    "stream": lambda pipe, key: pipe.xrange(key),
}
SHOWN: dict[str, Callable[[Any], Any]] = {
    "string": text,
    "list": text,
    "set": lambda found: sorted(text(list(found))),
    "zset": lambda found: {text(member): score for member, score in found},
    "hash": lambda found: {text(field): text(value) for field, value in found.items()},
    "stream": lambda found: [_entry(fields) for _, fields in found],
}


def _entry(fields: dict[bytes, bytes]) -> str:
    """One event in one line: `waiting jobId=1 prev=active`."""
    pairs = {text(field): text(value) for field, value in fields.items()}
    event = pairs.pop("event")
    return " ".join([event, *(f"{field}={value}" for field, value in pairs.items())])


class Wire:
    """One queue, spoken to by scripts. Times are ms on a clock of its own, `now`."""

    def __init__(self, client: Any, queue: str, prefix: str = "emq") -> None:
        self.client = client
        self.base = f"{prefix}:{{{queue}}}:"
        self.now = NOW
        self.token = "w:0"
        self._loaded: set[str] = set()

    # --- raw ---------------------------------------------------------------------------------

    def run(self, name: str, keys: list[str], args: list[Any], numkeys: int | None = None) -> Any:
        """EVALSHA with `keys` given in full; None becomes the empty string, as absent arguments do."""
        script = LIBRARY[name]
        self.load(name)
        values = ["" if value is None else value for value in args]
        assert numkeys is not None or len(keys) == script.keys, f"{name} takes {script.keys} keys"
        return text(self.client.evalsha(script.sha, numkeys or len(keys), *keys, *values))

    def load(self, *names: str) -> None:
        """Loads scripts that are not loaded yet; before a pipeline is used, since that cannot ask."""
        for name in names:
            if name not in self._loaded:
                assert text(self.client.script_load(LIBRARY[name].text)) == LIBRARY[name].sha
                self._loaded.add(name)

    def on(self, name: str, suffixes: str, *args: Any) -> Any:
        """The same with keys as suffixes of this queue's base, separated by blanks."""
        return self.run(name, [self.base + suffix for suffix in suffixes.split()], list(args))

    def key(self, suffix: str) -> str:
        return self.base + suffix

    def dump(self) -> Dump:
        return dump(self.client, self.base)

    def get(self, suffix: str) -> Any:
        return value_of(self.client, self.base + suffix)

    def events(self) -> list[str]:
        """What was emitted since the last call; the stream is emptied."""
        found: list[str] = self.get("events") or []
        self.client.delete(self.base + "events")
        return found

    # --- adds --------------------------------------------------------------------------------

    def add(self, job_id: str = "", name: str = "job", data: str = "{}", **opts: Any) -> Any:
        """Adds by the script that a client would choose.

        Special options: `parent` ({id, queueKey, fpof …}), `children` (true: the parent script), `rjk`.
        """
        parent, children, rjk = opts.pop("parent", None), opts.pop("children", False), opts.pop("rjk", None)
        script, suffixes = self._add_script(children, opts)
        parent_key = f"{parent['queueKey']}:{parent['id']}" if parent else None
        dedup = f"{self.base}de:{opts['de']['id']}" if "de" in opts else None
        dependencies = parent_key and parent_key + ":dependencies"
        row = [self.base, job_id, name, self.now, parent_key, dependencies, parent, rjk, dedup]
        return self.on(script, suffixes, msgpack.packb(row), data, msgpack.packb(opts))

    @staticmethod
    def _add_script(children: bool, opts: dict[str, Any]) -> tuple[str, str]:
        if children:
            return "addParentJob", "meta id delayed waiting-children completed events"
        if opts.get("delay"):
            return "addDelayedJob", "marker meta id delayed completed events"
        if opts.get("priority"):
            return "addPrioritizedJob", "marker meta id prioritized delayed completed active events pc"
        return "addStandardJob", "wait paused meta id completed delayed active events marker"

    def child_of(self, job_id: str, **flags: bool) -> dict[str, Any]:
        """The `parent` map of a child of this queue's job."""
        return {"id": job_id, "queueKey": self.base[:-1], **flags}

    # --- a job's way -------------------------------------------------------------------------

    def worker_opts(self, **more: Any) -> dict[str, Any]:
        return {"token": self.token, "lockDuration": 30_000, "limiter": None, "name": None, **more}

    def take(self, **opts: Any) -> Any:
        suffixes = "wait active prioritized events stalled limiter delayed paused meta pc marker"
        return self.on("moveToActive", suffixes, self.base, self.now, msgpack.packb(self.worker_opts(**opts)))

    def finish(
        self,
        job_id: str,
        value: str = "null",
        *,
        failed: bool = False,
        fetch: bool = False,
        keep: dict[str, int] | None = None,
        fields: list[Any] | None = None,
        **opts: Any,
    ) -> Any:
        how = "failed" if failed else "completed"
        suffixes = (
            "wait active prioritized events stalled limiter delayed paused meta pc "
            f"{how} {job_id} metrics:{how} marker"
        )
        packed = {
            "keepJobs": keep or {"count": -1},
            "attempts": 1,
            "maxMetricsSize": "",
            **self.worker_opts(),
        }
        packed.update(opts)
        return self.on(
            "moveToFinished",
            suffixes,
            job_id,
            self.now,
            "failedReason" if failed else "returnvalue",
            value,
            how,
            int(fetch),
            self.base,
            msgpack.packb(packed),
            msgpack.packb(fields) if fields else "",
        )

    def retry(self, job_id: str, *, push: str = "LPUSH", fields: list[Any] | None = None) -> Any:
        suffixes = f"active wait paused {job_id} meta events delayed prioritized pc marker stalled"  # 11 keys
        packed = msgpack.packb(fields) if fields else ""
        return self.on("retryJob", suffixes, self.base, self.now, push, job_id, self.token, packed)

    def delay(
        self,
        job_id: str,
        delay: Any,
        *,
        skip: bool = False,
        fetch: bool = False,
        fields: list[Any] | None = None,
    ) -> Any:
        suffixes = f"marker active prioritized delayed {job_id} events meta stalled wait limiter paused pc"  # 12 keys
        return self.on(
            "moveToDelayed",
            suffixes,
            self.base,
            self.now,
            job_id,
            self.token,
            delay,
            int(skip),
            msgpack.packb(fields) if fields else "",
            int(fetch),
            msgpack.packb(self.worker_opts()) if fetch else "",
        )

    def release(self, job_id: str) -> Any:
        suffixes = "active wait stalled paused meta limiter prioritized marker events"
        return self.on("moveJobFromActiveToWait", suffixes, job_id, self.token, self.key(job_id))

    # --- locks -------------------------------------------------------------------------------

    def extend(self, pairs: list[tuple[str, str]], duration: int = 30_000) -> Any:
        """Renews (id, token) pairs; answers the ids that failed."""
        ids, tokens = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return self.on(
            "extendLocks", "stalled", self.base, msgpack.packb(tokens), msgpack.packb(ids), duration
        )

    def sweep(self, max_stalled: int = 1, interval: int = 30_000, *, ninth: bool = False) -> Any:
        """One sweep. The guard key is real time: `sweep_again` removes it first."""
        suffixes = "stalled wait active stalled-check meta paused marker events" + " repeat" * ninth
        keys = [self.base + suffix for suffix in suffixes.split()]
        return self.run(
            "moveStalledJobsToWait", keys, [max_stalled, self.base, self.now, interval], numkeys=len(keys)
        )

    def sweep_again(self, max_stalled: int = 1, interval: int = 30_000) -> Any:
        self.client.delete(self.key("stalled-check"))
        return self.sweep(max_stalled, interval)

    def lose_lock(self, job_id: str) -> None:
        """What the end of the lock's time does, without waiting for it."""
        assert self.client.delete(self.key(f"{job_id}:lock")) == 1

    def pause(self) -> Any:
        return self.on("pause", "wait paused meta prioritized events delayed marker", "paused", "1")

    def resume(self) -> Any:
        return self.on("pause", "paused wait meta prioritized events delayed marker", "resumed", "1")

    # --- schedulers --------------------------------------------------------------------------

    def upsert_scheduler(
        self, scheduler: str, rule: dict[str, Any], *, at: Any = None, data: str = "{}", **opts: Any
    ) -> Any:
        suffixes = "repeat delayed wait paused meta prioritized marker id events pc active"
        template = opts.pop("template", {})
        repeat = {k: v for k, v in rule.items() if k != "name"} | {"count": 1}
        job_opts = {**template, "repeat": repeat, "repeatJobKey": scheduler, "timestamp": self.now, **opts}
        return self.on(
            "addJobScheduler",
            suffixes,
            at,
            msgpack.packb(rule),
            scheduler,
            data,
            msgpack.packb(template),
            msgpack.packb(job_opts),
            self.now,
            self.base,
            "",
        )

    def advance_scheduler(self, scheduler: str, producer: str, *, at: Any = None, **opts: Any) -> Any:
        keys = ["repeat", "delayed", "wait", "paused", "meta", "prioritized", "marker", "id", "events", "pc"]
        full = [*(self.base + key for key in keys), "", self.base + "active"]
        packed = msgpack.packb({"repeatJobKey": scheduler, **opts})
        args = [at, scheduler, "{}", packed, self.now, self.base, producer]
        return self.run("updateJobScheduler", full, args)


def flat(values: list[Any]) -> dict[str, Any]:
    """A flat array of fields and values as a dict."""
    return dict(zip(values[::2], values[1::2], strict=True))


def as_json(value: str) -> Any:
    """Stored options are compared as objects: the order of their keys is arbitrary."""
    return json.loads(value)
