# SPDX-License-Identifier: MIT
"""The one place where a word of the configuration becomes a plane."""

from __future__ import annotations

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import PoolConfig, RedisConfig
from echomq_pool.errors import InputError
from echomq_pool.plane.base import Plane, PlaneOptions
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.plane.lease_desk import Asking, fence
from echomq_pool.plane.lease_keys import VERSION_KEY, LeaseKeys
from echomq_pool.plane.lock import LockPlane
from echomq_pool.plane.slack import Pace
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import ScriptLibrary

PLANES = ("lock", "lease")


def make_keys(kind: str, queue: str, prefix: str = "emq", hash_tag: bool = True) -> QueueKeys:
    """The keys of a queue on the plane `kind`.

    Raises:
        InputError: an unknown plane, or a name or prefix that it does not allow.
    """
    if kind not in PLANES:
        raise InputError(f"plane: expected one of {', '.join(PLANES)}, got {kind!r}")
    return QueueKeys(prefix, queue, hash_tag) if kind == "lock" else LeaseKeys(queue, prefix)


def keys_of(config: PoolConfig, queue: str) -> QueueKeys:
    """The keys of a queue of the configuration."""
    return make_keys(config.plane_of(queue), queue, config.prefix, config.hash_tag)


def make_plane(
    link: Asking,
    keys: QueueKeys,
    library: ScriptLibrary,
    options: PlaneOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
    pace: Pace | None = None,
) -> Plane:
    """The plane to which `keys` belong."""
    if isinstance(keys, LeaseKeys):
        return LeasePlane(link, keys, library, options, clock, pace)
    return LockPlane(link, keys, library, options, clock, pace)


async def greet(link: Asking, kind: str, config: RedisConfig) -> None:
    """What a plane wants to have said on every new connection, before its first command.

    Raises:
        VersionFence: the server's lease-plane keys belong to another version.
    """
    if kind != "lease":
        return
    if not config.cluster:
        await fence(link)
        return
    # The version lives in a slot of its own, mostly at another node than the queue.
    other = Link(config, name="echomq:version", slot_key=VERSION_KEY)
    await other.start()
    try:
        await other.ready()
        await fence(other)
    finally:
        await other.close()
