"""An API server that says what a test wants, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, NamedTuple, Union
from urllib.parse import parse_qs, urlsplit

from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.system.clock import Clock


class Asked(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any
    groups: tuple[str, ...]


class Said(NamedTuple):
    """An answer: with ``lines``, one that goes on; it ends when they do, or never."""

    status: int = 200
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    lines: Sequence[Any] | None = None
    is_endless: bool = False


class Cut(NamedTuple):
    """No answer: the connection ends once the request was read."""


class Hang(NamedTuple):
    """No answer at all, for as long as the server is there."""


Reply = Union[Said, Cut, Hang]


def status(code: int, reason: str, message: str = "no", **details: Any) -> Said:
    """A refusal as Kubernetes has it."""
    body = {"kind": "Status", "message": message, "reason": reason, "code": code}
    return Said(code, {**body, "details": details})


class Scripted:
    """Such a server.

    Args:
        replies: One for each request, the last one for all further ones too.
        context: For TLS; None for none.

    Attributes:
        asked: All that it was, but whether it is ready.
        ready: What it says to that; the last one for all further times too.
        connections: How many were made.
    """

    def __init__(self, *replies: Reply, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self.replies = list(replies)
        self.ready: list[Reply] = [Said(body="ok")]
        self._over = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def log_message(self, *_: object) -> None:
                pass

            def _any(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                content = self.rfile.read(length)
                split = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(split.query).items()}
                asked = Asked(
                    self.command,
                    split.path,
                    query,
                    {name.lower(): value for name, value in self.headers.items()},
                    json.loads(content) if content else None,
                    tuple(self.headers.get_all("impersonate-group") or ()),
                )
                reply = outer._take(asked)
                if isinstance(reply, Said):
                    self._say(reply)
                    return
                if isinstance(reply, Hang):
                    outer._over.wait(60)
                self.close_connection = True

            def _say(self, said: Said) -> None:
                self.send_response(said.status)
                for name, value in said.headers:
                    self.send_header(name, value)
                if said.lines is None:
                    text = said.body if isinstance(said.body, str) else json.dumps(said.body)
                    content = text.encode()
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for line in said.lines:
                    text = line if isinstance(line, str) else json.dumps(line)
                    data = text.encode() + b"\n"
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                if said.is_endless:
                    outer._over.wait(60)
                    self.close_connection = True
                else:
                    self.wfile.write(b"0\r\n\r\n")

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _any

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def _take(self, asked: Asked) -> Reply:
        with self._lock:
            if asked.path == "/readyz":
                return _next(self.ready)
            self.asked.append(asked)
            return _next(self.replies)

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


def _next(replies: list[Reply]) -> Reply:
    return replies.pop(0) if len(replies) > 1 else replies[0]


@contextlib.contextmanager
def scripted(*replies: Reply, context: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """Such a server for as long as the block lasts."""
    server = Scripted(*replies, context=context)
    try:
        yield server
    finally:
        server.close()


def write_kubeconfig(path: Path, server: str, user: object = None, **cluster: object) -> Path:
    """Write a kubeconfig with one context, in JSON, and return its path."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


OpenApi = Callable[..., Api]


def api_of(kubeconfig: Path, *, clock: Clock | None = None, **options: Any) -> Api:
    """The API that a kubeconfig means."""
    choice = choose(KubernetesAddress(kubeconfig=str(kubeconfig)), {})
    return Api(choice, clock=clock or Clock(), **options)
