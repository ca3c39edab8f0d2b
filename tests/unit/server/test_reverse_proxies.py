"""nginx and Caddy in front of a server, configured as the documentation says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Callable

import pytest

from tests.kit.certificates import Certificates, make_certificates
from tests.kit.reverse_proxies import caddy, free_port, nginx
from tests.kit.serving import Serve, Serving, waiting
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

POOL = "T"
PROXIES: dict[str, Callable[..., AbstractContextManager[str]]] = {
    "nginx": nginx,
    "caddy": caddy,
}


class Front:
    """A server that may be restarted, and what stands in front of it."""

    def __init__(self, serve: Serve, port: int, url: str, ca_file: str, log: Path) -> None:
        self._serve = serve
        self._options = ("--listen", f"127.0.0.1:{port}")
        self.url = url
        self._environment = {"LEASECTL_BACKEND": url, "LEASECTL_CA_FILE": ca_file}
        self._log = log
        self.server: Serving
        self.start()

    def start(self) -> None:
        self.server = self._serve(*self._options)

    def run(self, folder: Path, name: str, *options: str) -> Started:
        """Start a command that writes its name once it has a lease."""
        client = Cli(folder / f"state-{name}", folder)
        script = f"echo {name} >>{self._log}"
        return client.start(
            "run", POOL, "-w", "30m", *options, "--", "sh", "-c", script, **self._environment
        )

    def served(self) -> list[str]:
        """The names in the order of their leases."""
        return self._log.read_text().split() if self._log.exists() else []


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def open_front(
    cli: Cli, serve: Serve, certificates: Certificates, tmp_path: Path
) -> Iterator[Callable[..., Front]]:
    """Open a pool of one resource behind a reverse proxy."""
    with ExitStack() as opened:

        def open_it(proxy: str, **more: str) -> Front:
            port = free_port()
            folder = tmp_path / proxy
            folder.mkdir()
            address = f"127.0.0.1:{port}"
            url = opened.enter_context(PROXIES[proxy](folder, address, certificates, **more))
            cli.pool(POOL, "only")
            return Front(serve, port, url, certificates.ca.file, tmp_path / "served")

        yield open_it


def _wait_in_order(front: Front, cli: Cli, folder: Path, names: str) -> dict[str, Started]:
    """Start waiters, one after the other."""
    started = {}
    for number, name in enumerate(names, 1):
        started[name] = front.run(folder, name)
        _wait_for_waiters(cli, number)
    return started


def _noted(cli: Cli) -> int:
    """How many requests a next server would wait for."""
    return sum(path.read_text().count("+") for path in cli.state_dir.glob("serve.places.*"))


def _wait_for_waiters(cli: Cli, number: int) -> None:
    eventually(lambda: waiting(cli, POOL) == number, f"{number} to wait")


@pytest.mark.parametrize("proxy", PROXIES)
def test_waiters_keep_their_order_over_two_restarts_of_the_server(
    cli: Cli, tmp_path: Path, open_front: Callable[..., Front], proxy: str
) -> None:
    front = open_front(proxy)
    handle = cli.hold(POOL)
    waiters = _wait_in_order(front, cli, tmp_path, "abc")
    eventually(lambda: _noted(cli) == 3, "their places to be noted")
    front.server.kill()
    for each in waiters.values():
        assert each.process.stderr is not None
        lines = iter(each.process.stderr.readline, "")
        said = next(line for line in lines if "trying again" in line)
        assert "502" in said
        assert "<" not in said
    front.start()
    eventually(lambda: _noted(cli) == 3, "their places to be noted again")
    front.server.kill()
    front.start()
    _wait_for_waiters(cli, 3)
    cli.ok("release", handle.id)
    assert [each.finish().code for each in waiters.values()] == [0, 0, 0]
    assert front.served() == ["a", "b", "c"]
    (told,) = json.loads(cli.ok("stats", "--json"))["pools"]
    assert (told["grants"], told["gave_up"]) == (4, 0)


@pytest.mark.parametrize("proxy", PROXIES)
def test_request_started_during_an_outage_waits_for_the_server(
    cli: Cli, tmp_path: Path, open_front: Callable[..., Front], proxy: str
) -> None:
    front = open_front(proxy)
    front.server.kill()
    waiter = front.run(tmp_path, "a")
    assert waiter.process.stderr is not None
    assert "trying again" in waiter.process.stderr.readline()
    front.start()
    assert waiter.finish().code == 0
    assert front.served() == ["a"]


def test_client_that_does_not_trust_the_proxy_is_told_what_names_its_ca(
    cli: Cli, open_front: Callable[..., Front]
) -> None:
    refused = cli("status", LEASECTL_BACKEND=open_front("nginx").url)
    assert refused.code == 69
    assert "; name the file with its CA in LEASECTL_CA_FILE; " in refused.err


def test_waiter_keeps_its_place_over_the_read_timeout_of_nginx(
    cli: Cli, tmp_path: Path, open_front: Callable[..., Front]
) -> None:
    front = open_front("nginx", read_timeout="1s")
    handle = cli.hold(POOL)
    waiters = _wait_in_order(front, cli, tmp_path, "ab")
    log = tmp_path / "nginx" / "error.log"
    eventually(lambda: log.read_text().count("timed out") >= 4, "both to be cut off twice")
    cli.ok("release", handle.id)
    assert [each.finish().code for each in waiters.values()] == [0, 0]
    assert front.served() == ["a", "b"]
