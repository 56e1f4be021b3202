"""A receiver of webhooks for tests: a real HTTP server that answers as it is told."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    """One request. Names of headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"

    @property
    def attempt(self) -> int:
        """The attempt that it is."""
        return int(self.headers["dueq-attempt"])


@dataclass
class Say:
    """An answer.

    Attributes:
        status: of HTTP.
        headers: besides the length.
        body: its bytes; "endless": bytes without end.
        wait: answered once this is set.
    """

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | str = b""
    wait: threading.Event | None = None


class Receiver:
    """Listens at a port of the loopback, from `with` on.

    Attributes:
        requests: what has come, in order.
        answer: called with each request.
    """

    def __init__(
        self, answer: Callable[[Received], Say] | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self.requests: Queue[Received] = Queue()
        self.answer = answer or (lambda request: Say())
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(self.path, headers, body, self.command)
                said = receiver.answer(request)
                receiver.requests.put(request)
                if said.wait is not None:
                    said.wait.wait(60)
                try:
                    self._say(said)
                except OSError:
                    self.close_connection = True

            do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815

            def _say(self, said: Say) -> None:
                self.send_response(said.status)
                for name, value in said.headers.items():
                    self.send_header(name, value)
                if isinstance(said.body, bytes):
                    self.send_header("content-length", str(len(said.body)))
                    self.end_headers()
                    self.wfile.write(said.body)
                    return
                self.close_connection = True
                self.end_headers()
                while True:
                    self.wfile.write(b"x" * 65_536)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        """The address at which it listens."""
        port: int = self._server.server_address[1]
        return port

    @property
    def url(self) -> str:
        """The URL of a hook."""
        return f"http://127.0.0.1:{self.port}/hook"

    def next(self) -> Received:
        """Return the next request, waiting for it."""
        return self.requests.get(timeout=60)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
