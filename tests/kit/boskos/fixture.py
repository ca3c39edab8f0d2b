"""The fixture that starts stand-ins for Boskos; tests/conftest.py makes it everybody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.kit.boskos import any_boskos as any_boskos_module
from tests.kit.boskos.any_boskos import AnyBoskos, SharedBoskos
from tests.kit.boskos.process import Boskos


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


@pytest.fixture(scope="session")
def shared_boskos() -> Iterator[SharedBoskos]:
    """One for all tests that need no faults, no reaper and no restart of it."""
    with any_boskos_module.shared_boskos() as server:
        yield server


@pytest.fixture
def any_boskos(shared_boskos: SharedBoskos) -> Iterator[AnyBoskos]:
    """A type of one's own, of a real Boskos if `LEASECTL_TEST_BOSKOS` names one."""
    found = shared_boskos.one()
    yield found
    found.close()
