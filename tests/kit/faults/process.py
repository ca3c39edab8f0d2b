"""A server with scripted faults as a process of its own, and its fixture."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from tests.kit import fork_server
from tests.kit.faults.control import Control
from tests.kit.faults.history import History
from tests.kit.support import is_stopped
from tests.kit.waits import eventually

_PROGRAM = Path(__file__).with_name("lease_proxy.py")


class FaultServer(Control):
    """A running server with scripted faults.

    Args:
        program: Its file.
        port_file: Where it writes its URL; the log is beside it.
        resources: ``T=3`` or ``T=name,name``.
        rules: As `script.py` reads them.
        options: More words of its command line.

    Attributes:
        url: Where it listens.
        log_path: Stays when it is gone.
    """

    def __init__(
        self,
        program: Path,
        port_file: Path,
        resources: Sequence[str],
        *,
        rules: Sequence[object] = (),
        options: Sequence[str] = (),
    ) -> None:
        self._port_file = port_file
        self._program = program
        self._options = ["--port-file", str(port_file), "--script", json.dumps(rules)]
        self._options += ["--parent", str(os.getpid()), *options]
        self._options += [f"--resources={each}" for each in resources]
        self.log_path = Path(f"{port_file}.log")
        self.start()

    def start(self, *options: str) -> None:
        """Start it, for the first time or again.

        Args:
            options: More words, for this time.
        """
        self._port_file.unlink(missing_ok=True)
        self.process = fork_server.start_program(self._program, [*self._options, *options])
        eventually(
            lambda: self._port_file.exists() or self.process.poll() is not None, what="a server"
        )
        assert self.process.poll() is None, (
            f"ended with {self.process.returncode}: {self.process.args}"
        )
        super().__init__(self._port_file)
        self.url = self._port_file.read_text(encoding="ascii").strip()

    @property
    def leased(self) -> list[str]:
        return self._list("leased")

    @property
    def waiting(self) -> list[dict[str, object]]:
        """The clients that wait for a resource."""
        return self._list("waiting")

    @property
    def hanging(self) -> list[dict[str, object]]:
        """The requests that hang, as their fault says."""
        return self._list("hanging")

    def pause(self) -> None:
        """STOP it: the kernel still takes connections, and no answer comes."""
        os.kill(self.process.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(self.process.pid), what="it is stopped")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """KILL it, as when its machine goes."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it, paused or not."""
        if self.process.poll() is None:
            self.process.terminate()
            self.go_on()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def _list(self, key: str) -> list:  # type: ignore[type-arg]
        found = self.state()[key]
        assert isinstance(found, list)
        return found


class FaultProxy(FaultServer):
    """A running lease proxy.

    Args:
        port_file: Where it writes its URL; the log is beside it.
        resources: ``T=3`` or ``T=name,name``.
        rules: As `script.py` reads them.
        options: More words of its command line.
    """

    def __init__(
        self,
        port_file: Path,
        resources: Sequence[str],
        *,
        rules: Sequence[object] = (),
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(_PROGRAM, port_file, resources, rules=rules, options=options)

    def history(self) -> History:
        """What has happened so far; also when the process is gone."""
        return History.read(self.log_path)


class StartFaultProxy(Protocol):
    """What the fixture `fault_proxy` is."""

    def __call__(
        self,
        *resources: str,
        faults: tuple[object, ...] = (),
        idempotent: bool = False,
        seed: int = 1,
        poll_seconds: float | None = None,
        acquire_timeout_seconds: float | None = None,
        upstream: str | None = None,
        ghost_seconds: float | None = None,
        reaped_seconds: float | None = None,
    ) -> FaultProxy: ...


@pytest.fixture
def fault_proxy(tmp_path: Path) -> Iterator[StartFaultProxy]:
    """Start lease proxies with scripted faults, such as ``fault_proxy("T=3")``.

    They end with the test; then the log of each is checked for what no server may do, and shown if
    the test failed.
    """
    started: list[FaultProxy] = []

    def start(
        *resources: str,
        faults: tuple[object, ...] = (),
        idempotent: bool = False,
        seed: int = 1,
        poll_seconds: float | None = None,
        acquire_timeout_seconds: float | None = None,
        upstream: str | None = None,
        ghost_seconds: float | None = None,
        reaped_seconds: float | None = None,
    ) -> FaultProxy:
        options = [f"--seed={seed}"]
        if idempotent:
            options.append("--idempotent")
        if poll_seconds is not None:
            options.append(f"--poll={poll_seconds}")
        if acquire_timeout_seconds is not None:
            options.append(f"--acquire-timeout={acquire_timeout_seconds}")
        if ghost_seconds is not None:
            options.append(f"--ghosts={ghost_seconds}")
        if reaped_seconds is not None:
            options.append(f"--reaped={reaped_seconds}")
        if upstream is not None:
            options.append(f"--upstream={upstream}")
        port_file = tmp_path / f"lease-proxy-{len(started) + 1}"
        proxy = FaultProxy(port_file, resources or ("T=3",), rules=faults, options=options)
        started.append(proxy)
        return proxy

    yield start
    for proxy in started:
        proxy.close()
    for proxy in started:
        print(proxy.log_path.read_text(encoding="utf-8"), end="")
        assert proxy.history().problems() == []
