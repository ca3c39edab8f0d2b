"""`leasectl serve` as a process of its own, for tests."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from typing import Any, Callable
from urllib.request import urlopen

import pytest

from tests.kit.faults.raw_client import RawClient
from tests.kit.support import Cli, Finished, Started, is_stopped
from tests.kit.waits import PATIENCE_SECONDS, eventually


class Serving:
    """A running server.

    Args:
        cli: Whose state directory it serves.
        options: More words of its command line.
        max_files: How many open files it may have; None for what this process may.

    Attributes:
        url: Its address.
    """

    def __init__(self, cli: Cli, *options: str, max_files: int | None = None) -> None:
        self.cli = cli
        words = ("serve", "-q", *options)
        if max_files is None:
            self._started = cli.start(*words)
        else:
            limited = ["bash", "-c", f'ulimit -n {max_files} && exec "$@"', "bash"]
            self._started = cli.spawn([*limited, *cli.command(*words)])
        self.url = first_line(self._started)
        self.pid = self._started.pid

    @classmethod
    def at(cls, url: str) -> Serving:
        """Return a server that was started elsewhere."""
        serving = cls.__new__(cls)
        serving.url = url
        return serving

    def connect(self) -> RawClient:
        return RawClient(self.url)

    def get(self, path: str) -> str:
        with urlopen(self.url + path, timeout=PATIENCE_SECONDS) as answer:
            text: str = answer.read().decode()
            return text

    def waiter(self, pool_type: str, **headers: str) -> RawClient:
        """A client that has asked for a lease and hasn't got it."""
        client = self.connect()
        client.start_acquire(pool_type, 1, **headers)
        return client

    def pause(self) -> None:
        """STOP it: the kernel still takes connections and what is sent on them.

        Not in the middle of a write: with it, everybody else's would wait.
        """
        while True:
            os.kill(self.pid, signal.SIGSTOP)
            eventually(lambda: is_stopped(self.pid), what="it is stopped")
            if self._is_unlocked():
                return
            self.go_on()

    def _is_unlocked(self) -> bool:
        with open(self.cli.state_dir / "state.lock", "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def complaint(self) -> str:
        """Wait for the next line for its operator, of which `end` no longer tells then."""
        assert self._started.process.stderr is not None
        return self._started.process.stderr.readline()

    def kill(self) -> None:
        self._started.kill()

    def wait(self) -> Finished:
        """Wait for its end."""
        return self._started.finish()

    def end(self, signum: int = signal.SIGTERM) -> Finished:
        """Ask it to end, and wait for that."""
        self._started.signal(signum)
        return self._started.finish()


Serve = Callable[..., Serving]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that the tests of a module share; each has pools of its own."""
    folder = tmp_path_factory.mktemp("shared")
    cli = Cli(folder / "state", folder)
    yield Serving(cli)
    cli.close()


def first_line(started: Started) -> str:
    """Wait for the first line that a command prints."""
    assert started.process.stdout is not None
    line = started.process.stdout.readline()
    assert line, started.finish()
    return line.rstrip("\n")


def resources(cli: Cli, pool_type: str) -> list[dict[str, Any]]:
    """The resources of a pool as ``status`` shows them."""
    shown = json.loads(cli.ok("status", "--json", "-t", pool_type, "--backend", "local:"))
    found: list[dict[str, Any]] = shown["pools"][0]["resources"]
    return found


def states(cli: Cli, pool_type: str) -> list[str]:
    """The states of a pool's resources as ``status`` shows them."""
    return [str(each["state"]) for each in resources(cli, pool_type)]


def waiting(cli: Cli, pool_type: str) -> int:
    """How many requests wait for a type."""
    return len(cli.query("SELECT 1 FROM ticket WHERE type = ?", pool_type))


def held(cli: Cli, pool_type: str) -> list[str]:
    """What is leased of a type."""
    rows = cli.query(
        "SELECT name FROM resource WHERE type = ? AND owner IS NOT NULL ORDER BY name", pool_type
    )
    return [str(name) for (name,) in rows]
