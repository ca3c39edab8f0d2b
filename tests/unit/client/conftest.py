"""A client in this process, and programs that use the library."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import leasectl
from tests.kit.support import Cli, Started, clean_environment

_PRELUDE = "import leasectl, os, sys, threading, time\nclient = leasectl.Client()\n"


@dataclass
class Programs:
    """Starts programs that use the library, each in a process of its own."""

    cli: Cli

    def start(self, text: str, **env: str | None) -> Started:
        """Start a program; `client` is a client."""
        argv = [sys.executable, "-W", "error", "-c", _PRELUDE + text]
        return self.cli.spawn(argv, **env)

    def run(self, text: str, **env: str | None) -> str:
        """Run a program that has to succeed and be silent on stderr; return its stdout."""
        finished = self.start(text, **env).finish()
        assert (finished.code, finished.err) == (0, ""), finished
        return finished.out


@pytest.fixture
def programs(cli: Cli) -> Programs:
    """Programs on the state directory of `cli`, with the pool T of two resources."""
    cli.pool("T")
    return Programs(cli)


@pytest.fixture
def environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's environment, so that a client here uses the state directory of `cli`."""
    kept = clean_environment()
    for name in set(os.environ) - set(kept):
        monkeypatch.delenv(name)
    monkeypatch.setenv("LEASECTL_STATE_DIR", str(cli.state_dir))


@pytest.fixture
def client(environment: None, programs: Programs) -> Iterator[leasectl.Client]:
    """A client of the embedded pool, with the pool T of two resources."""
    with leasectl.Client() as client:
        yield client
