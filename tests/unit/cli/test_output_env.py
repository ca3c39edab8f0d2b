"""``eval "$(leasectl acquire … --output env)"``: what a script sees of leases and failures."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

INSTALLED = str(Path(sys.executable).parent / "leasectl")
ACQUIRE = 'eval "$("$@" --output env)"'


def in_shell(shell: list[str], cli: Cli, script: str, *args: str, **env: str) -> Finished:
    """Run a script; ``"$@"`` in it is ``leasectl acquire`` with these arguments."""
    return cli.spawn([*shell, script, "-", INSTALLED, "acquire", *args], **env).finish()


@pytest.mark.parametrize("shell", [["bash", "-c"], ["bash", "-ec"], ["sh", "-c"], ["sh", "-ec"]])
def test_eval_fails_with_the_exit_code(shell: list[str], cli: Cli) -> None:
    cli.pool("T", "T--00")
    cli.ok("acquire", "T", "--release-after", "1h")
    for args, code in (
        (("T", "-w", "0", "-E", "42"), 42),
        (("nothing", "-w", "0"), 66),
        (("T", "--no-such-option"), 64),
    ):
        finished = in_shell(shell, cli, ACQUIRE, *args)
        assert (finished.code, finished.out) == (code, ""), finished
        assert finished.err.startswith("leasectl: ")


def test_eval_fails_where_the_backend_stands_before_the_command(cli: Cli) -> None:
    script = 'eval "$("$1" --backend local: acquire nothing --output env)"'
    assert cli.spawn(["bash", "-c", script, "-", INSTALLED]).finish().code == 66


def test_eval_fails_when_a_signal_ends_the_wait(cli: Cli) -> None:
    cli.pool("T", "T--00")
    cli.ok("acquire", "T", "--release-after", "1h")
    script = cli.spawn(["bash", "-c", ACQUIRE, "-", INSTALLED, "acquire", "T"])
    (waiter,) = eventually(lambda: cli.query("SELECT process FROM ticket"), what="it waits")
    os.kill(int(str(waiter[0]).split(":")[2]), signal.SIGTERM)
    assert script.finish().code == 128 + signal.SIGTERM


SHOW = f"{ACQUIRE}; echo $?; env | sed -n 's/^LEASECTL_[A-R]/&/p' | sort"
EARLIER = {
    "LEASECTL_HANDLE": "/earlier",
    "LEASECTL_NAMES": "U--00",
    "LEASECTL_FENCE": "7",
    "LEASECTL_PROPERTIES": "{}",
    "LEASECTL_PROPERTY_REGION": "us",
    "LEASECTL_PROPERTY_OWN": "x",
}


def test_lease_unsets_the_properties_of_an_earlier_one(cli: Cli) -> None:
    cli.ok("pool", "create", "T", "--count", "1", "--property", "own=y")
    finished = in_shell(["sh", "-c"], cli, SHOW, "T", "--release-after", "1h", **EARLIER)
    assert finished.code == 0, finished
    assert "LEASECTL_NAMES=T--00\n" in finished.out
    assert "LEASECTL_PROPERTY_OWN=y\n" in finished.out
    assert "REGION" not in finished.out


@pytest.mark.parametrize(("more", "code"), [((), 75), (("--optional",), 0)])
def test_without_a_lease_an_earlier_one_is_unset(
    cli: Cli, more: tuple[str, ...], code: int
) -> None:
    cli.pool("T", "T--00")
    cli.ok("acquire", "T", "--release-after", "1h")
    finished = in_shell(["sh", "-c"], cli, SHOW, "T", "-w", "0", *more, **EARLIER)
    assert finished.out == f"{code}\n", finished


def test_variable_names_of_the_environment_are_no_code(cli: Cli) -> None:
    cli.pool("T", "T--00")
    hostile = {"LEASECTL_PROPERTY_X; echo intruder": "1"}
    finished = in_shell(["sh", "-c"], cli, SHOW, "T", "--release-after", "1h", **hostile)
    assert finished.code == 0, finished
    assert not any(line == "intruder" for line in finished.out.splitlines())
