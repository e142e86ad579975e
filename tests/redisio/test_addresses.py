# SPDX-License-Identifier: MIT
"""TLS, unix sockets, and what stands at the other end when it is not what was meant."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq_pool.config.schema import RedisConfig, TlsConfig
from echomq_pool.errors import LinkRefused
from echomq_pool.redisio.address import Address, split_host_port
from tests.redisio.conftest import MakeLink
from tests.support.servers import Server, free_port
from tests.support.waiting import eventually_async


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A self-signed certificate of `localhost` and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: apt-get install openssl")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    # fmt: off
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )
    # fmt: on
    return str(cert), str(key)


@pytest.fixture
def tls_server(certificate: tuple[str, str]) -> Iterator[tuple[Server, int]]:
    """A Redis with a TLS port besides its plain one."""
    cert, key = certificate
    port = free_port()
    # fmt: off
    server = Server(
        "redis", "--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key,
        "--tls-ca-cert-file", cert, "--tls-auth-clients", "no",
    )
    # fmt: on
    yield server.start(), port
    server.destroy()


async def test_tls_is_spoken_where_the_address_asks_for_it(
    make_link: MakeLink, tls_server: tuple[Server, int], certificate: tuple[str, str]
) -> None:
    """case C149"""
    link = await make_link(
        tls_server[1], redis={"host": "localhost", "tls": TlsConfig(ca_file=certificate[0])}
    )
    blob = b"x" * 3_000_000
    assert (await asyncio.gather(link.call("SET", "a", blob), link.call("GET", "a")))[1] == blob
    assert "TLS" in link.state.detail


async def test_a_certificate_that_nobody_vouches_for_is_refused_unless_told_otherwise(
    make_link: MakeLink, tls_server: tuple[Server, int]
) -> None:
    """case C149"""
    link = await make_link(tls_server[1], redis={"host": "localhost", "tls": TlsConfig()})
    with pytest.raises(LinkRefused, match="certificate"):
        await link.ready()
    trusting = await make_link(tls_server[1], redis={"tls": TlsConfig(verify=False)})
    assert await trusting.call("PING") == b"PONG"


@pytest.mark.parametrize("attempt", range(5))
async def test_tls_to_a_plain_port_says_so_quickly(make_link: MakeLink, server: Server, attempt: int) -> None:
    """case C149: the server answers our handshake, or waits for more of it, as chance will have it"""
    started = time.monotonic()
    link = await make_link(server.port, redis={"host": "localhost", "tls": TlsConfig()})
    await eventually_async(lambda: "TLS" in link.state.detail, within=5)
    assert time.monotonic() - started < 5


async def test_plain_to_a_tls_port_says_so_quickly(
    make_link: MakeLink, tls_server: tuple[Server, int]
) -> None:
    """case C149"""
    started = time.monotonic()
    link = await make_link(tls_server[1])
    await eventually_async(lambda: "TLS" in link.state.detail, within=5)
    assert time.monotonic() - started < 5


async def test_a_web_server_is_told_from_a_redis(make_link: MakeLink) -> None:
    """case C149"""

    def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as web:
        link = await make_link(web.sockets[0].getsockname()[1])
        with pytest.raises(LinkRefused, match="HTTP"):
            await link.ready()
        await link.close()


async def test_missing_tls_files_are_named(make_link: MakeLink, server: Server) -> None:
    """case C149"""
    link = await make_link(server.port, redis={"tls": TlsConfig(ca_file="/nowhere/ca.pem")})
    with pytest.raises(LinkRefused, match=r"/nowhere/ca\.pem"):
        await link.ready()


async def test_a_unix_socket_serves_as_well(make_link: MakeLink, tmp_path: Path) -> None:
    """case C002"""
    path = tmp_path / "s"
    server = Server("valkey", "--unixsocket", str(path)).start()
    try:
        link = await make_link(0, redis={"unix_path": str(path)})
        assert await link.call("PING") == b"PONG"
        first = link.client_id
        await asyncio.to_thread(server.stop, kill=True)
        await eventually_async(lambda: "No such file" in link.state.detail or "refused" in link.state.detail)
        await asyncio.to_thread(server.start)
        assert await link.call("PING") == b"PONG"
        assert first is not None
    finally:
        server.destroy()


def test_addresses_are_shown_without_their_passwords() -> None:
    """case C149"""
    config = RedisConfig(host="::1", password="secret", username="me", tls=TlsConfig())
    address = Address.from_config(config)
    assert str(address) == "[::1]:6379 (TLS)"
    assert "secret" not in repr(address)
    assert str(Address.from_config(RedisConfig(unix_path="/run/s"))) == "unix:/run/s"


def test_sentinel_addresses_are_split() -> None:
    """case C010"""
    assert split_host_port("a:1", 9) == ("a", 1)
    assert split_host_port("a", 9) == ("a", 9)
    assert split_host_port("[::1]:7", 9) == ("::1", 7)
    assert split_host_port("::1", 9) == ("::1", 9)
    assert split_host_port("[::1]", 9) == ("::1", 9)
