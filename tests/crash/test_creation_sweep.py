"""KILLs at the first command there is in a state directory, which makes it."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.kit.forking import ending, fork, leasectl
from tests.kit.invariants import broken_invariants
from tests.kit.killing import EVERY_KILL, kill_at
from tests.kit.support import Cli

STRIDE = 1 if EVERY_KILL else 17
# More than it has calls into the system.
LAST = 2000


def test_it_can_be_killed_anywhere(tmp_path: Path) -> None:
    kills = 0
    for number in range(1, LAST, STRIDE):
        folder = tmp_path / str(number)
        folder.mkdir()
        cli = Cli(folder / "state", folder)
        code = ending(fork(lambda n=number, c=cli: create(c, n)))  # type: ignore[misc]
        assert code in (0, -signal.SIGKILL), number
        if cli("pool", "create", "T", "--count", "2").code != 0:  # it is there already
            assert cli.ok("acquire", "-q", "-t", "T", "--output", "names"), number
        assert broken_invariants(cli.state_dir) == [], number
        assert cli.query("PRAGMA integrity_check") == [("ok",)], number
        assert [each.name for each in cli.state_dir.glob("*.new*")] == [], number
        cli.close()
        if code == 0:
            break
        kills += 1
    assert code == 0, "it is still being killed"
    assert kills
    print(f"{kills} kills")


def create(cli: Cli, number: int) -> None:
    """Make a pool where nothing is yet; its process is killed at that event."""
    kill_at(number)
    leasectl(cli.state_dir, cli.cwd / "output", "pool", "create", "T", "--count", "2")
