# SPDX-License-Identifier: MIT
"""Where a connection goes and how it is opened: host and port or socket path, TLS, credentials, database."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace

from echomq_pool.config.schema import RedisConfig, TlsConfig
from echomq_pool.errors import LinkRefused


@dataclass(frozen=True, slots=True)
class Address:
    """One server. `unix_path` wins over `host` and `port`; names are resolved anew at every connect."""

    host: str = "127.0.0.1"
    port: int = 6379
    unix_path: str = ""
    db: int = 0
    username: str = ""
    password: str = ""
    tls: TlsConfig | None = None

    @classmethod
    def from_config(cls, config: RedisConfig) -> Address:
        """The address that the configuration names. The password never appears in `str(address)`."""
        return cls(
            config.host,
            config.port,
            config.unix_path,
            config.db,
            config.username,
            config.password,
            config.tls,
        )

    def at(self, host: str, port: int) -> Address:
        """The same credentials at another node; where a node leaves its host empty, ours is meant."""
        return replace(self, host=host or self.host, port=port, unix_path="")

    def __str__(self) -> str:
        if self.unix_path:
            return f"unix:{self.unix_path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{' (TLS)' if self.tls else ''}"

    def __repr__(self) -> str:
        return f"Address({self})"


def split_host_port(text: str, default_port: int) -> tuple[str, int]:
    """`host:port`, `[v6]:port` or a bare host."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]") or (":" in host and not host.startswith("[")):
        return text.strip("[]"), default_port
    return host.strip("[]"), int(port)


def tls_context(tls: TlsConfig) -> ssl.SSLContext:
    """The TLS client context.

    Raises:
        LinkRefused: a file named by the configuration cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(name for name in (tls.ca_file, tls.cert_file, tls.key_file) if name)
        raise LinkRefused(f"TLS files cannot be used ({files}): {error}") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
