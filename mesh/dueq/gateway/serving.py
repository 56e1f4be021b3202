"""The gateway as a process: where it listens, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import resource
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Final

import uvicorn

from dueq import AsyncClient, limits
from dueq.errors import InvalidRequest
from dueq.gateway.app import create_app
from dueq.gateway.connections import HttpConnection, SocketConnection
from dueq.gateway.faces.cloud_tasks.issuer import Issuer
from dueq.gateway.faces.doq.failures import Statuses
from dueq.gateway.logs import configure, log
from dueq.gateway.service import Service
from dueq.gateway.webhooks.addresses import Addresses
from dueq.sealing import Keys

_FILES: Final = limits.GATEWAY_CONNECTIONS_MAX + limits.WEBHOOK_CONNECTIONS_MAX + 1024
"""Open files: connections of clients, those to receivers, and a few more."""
_LISTEN: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):(?P<port>\d{1,5})")


def listening(text: str) -> socket.socket:
    """Return a socket that listens at `HOST:PORT`.

    Raises:
        InvalidRequest: it is no address, it is not on the loopback, or the port cannot be used.
    """
    found = _LISTEN.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise InvalidRequest(f"a gateway listens at HOST:PORT, such as 127.0.0.1:7480, not at {text!r:.80}")
    host = "127.0.0.1" if found["host"] == "localhost" else found["host"].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise InvalidRequest(
            f"a gateway listens at an IP address or localhost, not at {host!r:.80}"
        ) from None
    if not address.is_loopback:
        raise InvalidRequest(
            f"{host} is not on the loopback: anybody who reaches the gateway may do everything, since nobody is "
            "authenticated; let it listen at 127.0.0.1 or [::1]"
        )
    made = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, int(found["port"])))
    except OSError as error:
        made.close()
        raise InvalidRequest(f"{text} cannot be listened at: {error.strerror}") from error
    return made


def url_of(made: socket.socket) -> str:
    """Return where a socket is reached."""
    host, port = made.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(
    listener: socket.socket,
    endpoints: Sequence[str] | None,
    hosts: Iterable[str],
    allowed: Iterable[str],
    level: str,
    announce: Callable[[str], object],
    read_only: bool = False,
    doq_errors: Statuses = "legacy",
    doq_grpc: str = "",
    keys: Keys | None = None,
    oidc_issuer: str = "",
    oidc_key_file: Path | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code.

    Args:
        listener: of `listening`.
        endpoints: of brokers; None: those of DUEQ_ENDPOINTS.
        hosts: names by which it may be called, besides those of the loopback.
        allowed: networks to which webhooks may go, beside public addresses.
        level: of the log.
        announce: called with the gateway's address once it serves.
        read_only: nothing is changed or delivered by it.
        doq_errors: statuses of which of doq's versions its API has.
        doq_grpc: HOST:PORT of doq's gRPC API, on the loopback; "": it is not served.
        keys: open the secrets of endpoints.
        oidc_issuer, oidc_key_file: of tokens for requests of Cloud Tasks: its URL, and its keys.

    Raises:
        InvalidRequest: one of `allowed` is no network, the gRPC API cannot be served there, or the issuer is none.
    """
    configure(level)
    allow_files()
    networks = [each.strip() for text in allowed for each in text.split(",") if each.strip()]
    Addresses(networks)
    issuer = Issuer.load(oidc_issuer, oidc_key_file)
    if doq_grpc:
        if read_only:
            raise InvalidRequest("a read-only gateway does not serve doq's gRPC API: it delivers messages")
        with listening(doq_grpc) as free:
            host, port = free.getsockname()[:2]
        doq_grpc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    app = create_app(
        lambda: AsyncClient(endpoints), hosts, networks, read_only, doq_errors, doq_grpc, keys, issuer
    )
    config = uvicorn.Config(
        app, http=HttpConnection, ws=SocketConnection, loop="asyncio", lifespan="on", log_config=None,
        access_log=False, proxy_headers=False, server_header=False,
        limit_concurrency=limits.GATEWAY_CONNECTIONS_MAX,
        h11_max_incomplete_event_size=limits.GATEWAY_HEAD_BYTES_MAX,
        timeout_graceful_shutdown=limits.GATEWAY_STOP_MS // 1000,
        ws_max_size=limits.GATEWAY_JSON_BYTES_MAX, ws_per_message_deflate=False,
    )  # fmt: skip
    asyncio.run(
        _Server(config, url_of(listener), announce, lambda: getattr(app.state, "service", None)).serve(
            [listener]
        )
    )
    return 0


def allow_files() -> None:
    """Let the process have as many connections as a gateway may, if it may say so itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    """Tells waiting requests that the end has come, before it waits for them."""

    def __init__(
        self,
        config: uvicorn.Config,
        url: str,
        announce: Callable[[str], object],
        service: Callable[[], Service | None],
    ) -> None:
        super().__init__(config)
        self._url, self._announce, self._service = url, announce, service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told)
        await super().startup(sockets)
        log.info("gateway.started", url=self._url)
        self._announce(self._url)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the loop: the process ends in order, with exit code 0."""
        yield

    def _told(self) -> None:
        if self.should_exit:
            self.force_exit = True
            return
        self.should_exit = True
        service = self._service()
        if service is not None:  # else it ends as soon as it has begun
            service.stop()
        log.info("gateway.stopping", url=self._url)
