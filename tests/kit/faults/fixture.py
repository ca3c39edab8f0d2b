"""The fixture that starts lease proxies; tests/conftest.py makes it everybody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.kit.faults.process import FaultProxy


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
