"""A state directory may hold a record of a backend that only another version knows."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3

import pytest

from tests.kit.support import Cli
from tests.kit.waits import eventually

URL = "boskos://server"


@pytest.fixture
def foreign(cli: Cli) -> str:
    """A handle at a backend that there isn't, beside a pool of our own; its guard has ended."""
    cli.pool("T", "T--00", "T--01")
    guard = cli.spawn(["sleep", "60"])
    handle = cli("acquire", "-t", "T", "--guard-pid", str(guard.pid)).handle
    handle_id = os.path.basename(handle)
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as database, database:
        database.execute("UPDATE handle SET backend = ? WHERE id = ?", (URL, handle_id))
        database.execute("UPDATE resource SET owner = NULL WHERE owner = ?", (handle_id,))
    guard.kill()
    return handle


def test_the_keeper_says_what_it_cant_release_and_goes_on_with_the_others(
    cli: Cli, foreign: str
) -> None:
    guard = cli.spawn(["sleep", "60"])
    ours = cli("acquire", "-t", "T", "-w", "5m", "--guard-pid", str(guard.pid)).handle
    log = cli.state_dir / "keeper.log"
    eventually(lambda: log.exists() and f'unknown backend "{URL}"' in log.read_text())
    guard.kill()
    eventually(lambda: cli.ok("cat", "--handle", ours) == "")
    assert cli.ok("cat", "--handle", foreign) == "T--00\n"


def test_it_keeps_nobody_from_the_embedded_pool(cli: Cli, foreign: str) -> None:
    (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
    assert (pool["held"], pool["free"]) == (0, 2)
    assert cli("acquire", "-t", "T", "-w", "5m").code == 0
    assert cli("doctor").code in (0, 1)
    refused = cli("release", "--handle", foreign)
    assert (refused.code, refused.err.count("\n")) == (64, 1)
    assert f'unknown backend "{URL}"' in refused.err
