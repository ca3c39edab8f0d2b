"""What no hand-off over an API server can be faster than: one event, and one guarded write.

A process writes an object; another one watches it, and writes one of its own as soon as it hears of
that. Both with nothing between them and the server but the standard library, on connections that
are there already.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable
from urllib.parse import urlsplit

from tests.kit.forking import ending, fork

# What objects of it are called; nothing else is.
PREFIX = "floor-"


class _Server:
    """An API server, as a kubeconfig with a token says; one request at a time."""

    def __init__(self, kubeconfig: Path) -> None:
        said = json.loads(kubeconfig.read_text())
        cluster = said["clusters"][0]["cluster"]
        address = urlsplit(cluster["server"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cluster["certificate-authority"])
        self._connection = http.client.HTTPSConnection(
            str(address.hostname), address.port, context=context
        )
        self._headers = {
            "Authorization": f"Bearer {said['users'][0]['user']['token']}",
            "Content-Type": "application/json",
        }
        namespace = said["contexts"][0]["context"]["namespace"]
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def open(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, content, self._headers)
        response = self._connection.getresponse()
        assert response.status < 300, response.read()
        return response

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return json.loads(self.open(method, path, body).read())


class _Object:
    """A Lease that is written again and again by one process."""

    def __init__(self, server: _Server, name: str) -> None:
        self._server, self._path = server, f"{server.path}/{PREFIX}{name}"
        self._seen = server.ask("POST", server.path, {"metadata": {"name": PREFIX + name}})

    @property
    def version(self) -> str:
        return str(self._seen["metadata"]["resourceVersion"])

    def write(self) -> None:
        """Write it, guarded by what was written before."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        microseconds = time.time_ns() // 1000 % 1_000_000
        self._seen["spec"] = {"renewTime": f"{now}.{microseconds:06d}Z"}
        self._seen["metadata"]["managedFields"] = [{}]
        self._seen = self._server.ask("PUT", self._path, self._seen)


@contextmanager
def floor(kubeconfig: Path) -> Iterator[Callable[[], float]]:
    """What measures it once: seconds from the call of the one write to the return of the other."""
    number = f"{os.getpid()}-{time.monotonic_ns()}"
    first = _Object(_Server(kubeconfig), f"{number}-first")
    done_read, done_write = os.pipe()

    def answer() -> None:
        server = _Server(kubeconfig)
        second = _Object(server, f"{number}-second")
        selector = f"fieldSelector=metadata.name%3D{PREFIX}{number}-first"
        query = f"watch=1&resourceVersion={first.version}&{selector}"
        events = _Server(kubeconfig).open("GET", f"{server.path}?{query}")
        os.write(done_write, bytes(8))  # it listens
        while events.readline():
            second.write()
            os.write(done_write, time.perf_counter_ns().to_bytes(8, "little"))

    child = fork(answer)
    os.read(done_read, 8)

    def once() -> float:
        start = time.perf_counter_ns()
        first.write()
        return (int.from_bytes(os.read(done_read, 8), "little") - start) / 1e9

    try:
        once()  # it warms up
        yield once
    finally:
        os.kill(child, signal.SIGKILL)
        ending(child)
        os.close(done_read)
        os.close(done_write)
