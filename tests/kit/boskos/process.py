"""The stand-in for Boskos as a process of its own, and its fixtures."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from tests.kit.boskos.history import BoskosHistory
from tests.kit.faults.connection import bind
from tests.kit.faults.process import FaultServer
from tests.kit.waits import eventually

_PROGRAM = Path(__file__).with_name("boskos.py")


class Boskos(FaultServer):
    """A running Boskos; it has the same port each time it is started.

    Args:
        port_file: Where it writes its URL; the log is beside it.
        resources: ``T=3`` or ``T=name,name``.
        rules: As `tests/kit/faults/script.py` reads them.
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
        # Bound here as well, and never listening: nobody else gets the port while it is down.
        self._reserved = bind(0)
        words = [f"--port={self._reserved.getsockname()[1]}", *options]
        super().__init__(_PROGRAM, port_file, resources, rules=rules, options=words)

    @property
    def backend(self) -> str:
        """For `LEASECTL_BACKEND`, without what its reaper is set to."""
        return f"boskos+{self.url}"

    @property
    def owners(self) -> dict[str, str]:
        """The owner of each resource that has one."""
        owners = self.state()["owners"]
        assert isinstance(owners, dict)
        return owners

    def restart(self, *, remembers: str = "resources", seed: int | None = None) -> None:
        """KILL it and start it again.

        Args:
            remembers: ``resources``, as one on Kubernetes does; ``queues`` as well; or ``nothing``,
                as one that has all in memory.
            seed: What chance is drawn from then; what it was before if None, so the same of its
                requests go wrong again.
        """
        self.kill()
        self.start(f"--remembers={remembers}", *([] if seed is None else [f"--seed={seed}"]))

    def configure(self, *resources: str) -> None:
        """Change the file that says which resources it has, and have it read.

        Args:
            resources: ``T=3`` or ``T=name,name``.
        """
        before = len(self.history().of("config"))
        Path(f"{self._port_file}.config").write_text(" ".join(resources), encoding="utf-8")
        self.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(self.history().of("config")) > before, what="it has read its file")

    def history(self) -> BoskosHistory:
        """What has happened so far; also when the process is gone."""
        return BoskosHistory.read(self.log_path)

    def close(self) -> None:
        super().close()
        self._reserved.close()


class StartBoskos(Protocol):
    """What the fixture `boskos` is."""

    def __call__(
        self, *resources: str, faults: tuple[object, ...] = (), **options: object
    ) -> Boskos: ...


@pytest.fixture
def boskos(tmp_path: Path) -> Iterator[StartBoskos]:
    """Start stand-ins for Boskos, such as ``boskos("T=3", expire=5, reaper_interval=1)``.

    Options are those of `boskos.py`. They end with the test; then the log of each is checked for
    what no Boskos may do, and shown if the test failed.
    """
    started: list[Boskos] = []

    def start(*resources: str, faults: tuple[object, ...] = (), **options: object) -> Boskos:
        port_file = tmp_path / f"boskos-{len(started) + 1}"
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        server = Boskos(port_file, resources or ("T=3",), rules=faults, options=words)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()
    for server in started:
        print(server.log_path.read_text(encoding="utf-8"), end="")
        assert server.history().problems() == []
