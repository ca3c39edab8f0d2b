"""In front of an API server of Kubernetes that is busy, or doesn't answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.system.poll import is_readable
from tests.kit.serving import Serve, Serving
from tests.kit.support import Cli
from tests.kit.waits import eventually
from tests.unit.engines.kubernetes.api.scripted import (
    Hang,
    Reply,
    Said,
    Scripted,
    scripted,
    write_kubeconfig,
)

NOTHING = Said(body={"items": [], "metadata": {"resourceVersion": "5"}})
BUSY = Said(429, "Too many requests, please try again later.\n", (("Retry-After", "40"),))


@pytest.fixture
def api_server() -> Iterator[Scripted]:
    with scripted(NOTHING) as server:
        yield server


@pytest.fixture
def server(cli: Cli, serve: Serve, api_server: Scripted, tmp_path: Path) -> Serving:
    """In front of a namespace without pools; what it asks may take a minute."""
    cli.env["LEASECTL_KUBECONFIG"] = str(write_kubeconfig(tmp_path / "config", api_server.url))
    cli.env["LEASECTL_RELEASE_TIMEOUT"] = "60s"
    return serve("--backend", "kubernetes://ns")


@pytest.mark.parametrize("path", ["/metrics", "/leasectl/v1/status"])
@pytest.mark.parametrize("reply", [BUSY, Hang()], ids=["busy", "silent"])
def test_one_request_that_waits_for_it_delays_no_other_client(
    server: Serving, api_server: Scripted, reply: Reply, path: str
) -> None:
    with server.connect() as waiting, server.connect() as other:
        asked = len(api_server.asked)
        api_server.replies[:] = [reply]
        waiting.send("GET", path)
        eventually(lambda: len(api_server.asked) > asked)
        assert other.ask("GET", "/nothing/here").status == 404
        assert not is_readable(waiting.socket.fileno(), 0)
    server.kill()
