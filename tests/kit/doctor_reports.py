"""What one run of ``leasectl doctor`` said, and the state directory behind its back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from typing import Any

from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

CORRUPT, UNWRITABLE, USAGE = 65, 73, 64


class Report:
    """What one run of `doctor --json` said."""

    def __init__(self, finished: Finished) -> None:
        self.code = finished.code
        self.err = finished.err
        self.checks: dict[str, Any] = {
            check["name"]: check for check in json.loads(finished.out)["checks"]
        }

    def __getitem__(self, name: str) -> Any:
        return self.checks[name]

    def statuses(self) -> dict[str, str]:
        """The checks that aren't ok."""
        return {n: c["status"] for n, c in self.checks.items() if c["status"] != "ok"}


def doctor(cli: Cli, *args: str, **env: str | None) -> Report:
    return Report(cli("doctor", "--json", *args, **env))


@contextlib.contextmanager
def database(cli: Cli) -> Iterator[sqlite3.Connection]:
    """The database behind leasectl's back."""
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db", timeout=10)) as db, db:
        yield db


def kill_keepers(cli: Cli) -> None:
    for pid in eventually(cli.keepers):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cli.keepers())


def database_dump(cli: Cli) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db:
        yield from list(db.iterdump())


def files(cli: Cli) -> list[str]:
    found = (path.relative_to(cli.state_dir).as_posix() for path in cli.state_dir.rglob("*"))
    return sorted(path for path in found if not path.startswith("state.db-"))
