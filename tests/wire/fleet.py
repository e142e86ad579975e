# SPDX-License-Identifier: MIT
"""Pools, queues and streams as the wire tests use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually


@dataclass(frozen=True)
class Layout:
    """How a queue is named on each side: ours by prefix and hash tag, Node's by prefix and full name."""

    prefix: str
    hash_tag: bool

    def node(self, queue: str) -> dict[str, str]:
        """The arguments by which `peer.js` opens the queue."""
        return {"prefix": self.prefix, "name": f"{{{queue}}}" if self.hash_tag else queue}

    def ours(self, server: Server) -> dict[str, Any]:
        """The arguments by which our `Queue` opens a queue."""
        return {"url": server.url, "prefix": self.prefix, "hash_tag": self.hash_tag}

    def base(self, queue: str) -> str:
        """First part of the queue's keys."""
        return ":".join([*self.node(queue).values(), ""])

    def toml(self) -> str:
        return f'prefix = "{self.prefix}"\nhash_tag = {str(self.hash_tag).lower()}'


EMQ = Layout("emq", True)
BULL = Layout("bull", False)


def workers(name: str, queues: list[str], **options: Any) -> str:
    """One `[[workers]]` group. Options are written as TOML: text that starts with a brace as it is."""
    rows = {"processor": "tests.wire.jobs:play", "processes": 1, "concurrency": 5, **options}
    lines = ["[[workers]]", f'name = "{name}"', f"queues = {queues}".replace("'", '"')]
    for key, value in rows.items():
        plain = isinstance(value, int) or value.startswith("{")
        lines.append(f"{key} = {value}" if plain else f'{key} = "{value}"')
    return "\n".join([*lines, ""])


@contextmanager
def pool_of(
    folder: Path, server: Server, *groups: str, layout: Layout = EMQ, name: str = "wire", **env: str
) -> Iterator[PoolProcess]:
    """A running pool with these groups, and `env` in its environment."""
    pool = PoolProcess(folder, server.url, "\n".join(groups), name=name, top=layout.toml()).start(env=env)
    try:
        yield pool
    finally:
        pool.destroy()


def story(client: Any, base: str, *events: str) -> list[tuple[str, str]]:
    """(event, job id) of a queue's stream in its order; of these events only, where some are named."""
    found = []
    for _, fields in client.xrange(f"{base}events"):
        event, job_id = fields[b"event"].decode(), fields.get(b"jobId", b"").decode()
        if not events or event in events:
            found.append((event, job_id))
    return found


def finish(node: Node, at: dict[str, str], total: int, *, within: float = 60) -> dict[str, int]:
    """Waits until `total` jobs are completed or failed and returns Node's counts."""

    def done() -> dict[str, int] | None:
        counts: dict[str, int] = node("counts", **at)
        return counts if counts["completed"] + counts["failed"] >= total else None

    counts: dict[str, int] = eventually(done, within=within, why=f"{total} jobs finished")
    return counts


def ended(
    node: Node, at: dict[str, str], job_id: str, state: str = "completed", *, within: float = 20
) -> dict[str, Any]:
    """Waits until Node sees the job in `state`, and returns Node's view of it."""

    def there() -> dict[str, Any] | None:
        job: dict[str, Any] | None = node("job", **at, id=job_id)
        return job if job and job["state"] == state else None

    job: dict[str, Any] = eventually(there, within=within, why=f"job {job_id} is {state}")
    return job
