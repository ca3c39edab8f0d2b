"""Waiting for a lease in an interactive Bash, with job control: nobody is left waiting unseen."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasectl
from leasectl.leases.release import release
from leasectl.model import whole
from tests.kit.support import Cli
from tests.kit.terminal import CTRL_BACKSLASH, CTRL_C, CTRL_Z, Terminal, terminal
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

FUNCTIONS = Path(leasectl.__file__).parent / "shell" / "leasectl.bash"
WAITS = "waiting for T: position 1"
IN_A_FUNCTION = "lease__acquire -t T --scope=step --var=h"
IN_A_SUBSHELL = "h=$(lease__acquire -t T --scope=step)"
ACQUIRE = "leasectl acquire -t T"
RUN = "leasectl run -t T -- echo ran"


class Prompt:
    """An interactive Bash; whoever wants a lease of T there has to wait.

    Args:
        cli: Whose state directory it uses.
        terminal: Where the Bash is.
    """

    def __init__(self, cli: Cli, terminal: Terminal) -> None:
        self._cli = cli
        self._terminal = terminal
        self._held = cli.hold("T")
        self.enter("PS1='@$?@ '")
        assert self.enter(f"source {FUNCTIONS}") == "0"

    def status(self) -> str:
        """Wait for the prompt, and return the exit code that it shows."""
        return self._terminal.until(r"@(\d+)@ ")[1]

    def enter(self, line: str) -> str:
        """Enter a line, and wait for the next prompt."""
        self._terminal.enter(line)
        return self.status()

    def output(self, line: str) -> str:
        """What a command prints, its echo included."""
        self._terminal.enter(line)
        shown = self._terminal.until(r"@\d+@ ")
        return shown.string[: shown.start()]

    def wait_in(self, line: str) -> None:
        """Enter a line that waits for a lease, and see it wait."""
        self._terminal.enter(line)
        self.see(WAITS)

    def see(self, pattern: str) -> None:
        self._terminal.until(pattern)

    def type(self, keys: bytes) -> None:
        self._terminal.type(keys)

    def press(self, key: bytes) -> str:
        """Press a key after which there is a prompt; returns the exit code that it shows."""
        self.type(key)
        return self.status()

    def is_stopped(self) -> bool:
        """Whether all that Bash has started is; before, it may read what is typed for Bash."""
        states = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                pid, _, rest = stat.read_text().partition(" ")
                state, _, _, session = rest.rpartition(")")[2].split()[:4]
                if session == str(self._terminal.pid) != pid:
                    states.append(state)
        return set(states) == {"T"}

    def close_window(self) -> None:
        self._terminal.close()

    def free(self) -> None:
        """Free what others wait for."""
        with self._cli.service() as service:
            release(service, whole(self._held))

    def somebody_waits(self) -> bool:
        return bool(self._cli.waiting())

    def nothing_is_left(self) -> bool:
        """Nobody waits, and nobody takes what becomes free."""
        eventually(lambda: not self._cli.waiting(), what="nobody waits")
        self.free()
        return self._cli.held() == {}


@pytest.fixture
def prompt(cli: Cli) -> Iterator[Prompt]:
    bash = shutil.which("bash")
    assert bash is not None
    cli.pool("T", "T--00")
    env = {
        **cli.env,
        "PATH": os.pathsep.join((os.path.dirname(sys.executable), cli.env["PATH"])),
        "TERM": "xterm",
        "INPUTRC": "/dev/null",
        "LEASECTL_BACKEND": "local:",
    }
    with terminal([bash, "--norc", "--noprofile", "-i"], env, cli.cwd) as opened:
        yield Prompt(cli, opened)


@pytest.mark.parametrize(
    ("line", "key", "status"),
    [
        (IN_A_FUNCTION, CTRL_C, "130"),
        (IN_A_FUNCTION, CTRL_BACKSLASH, "1"),
        (IN_A_SUBSHELL, CTRL_C, "130"),
        (ACQUIRE, CTRL_C, "130"),
        (ACQUIRE, CTRL_BACKSLASH, "131"),
        (RUN, CTRL_C, "130"),
        (RUN, CTRL_BACKSLASH, "131"),
    ],
)
def test_a_key_ends_the_wait(prompt: Prompt, line: str, key: bytes, status: str) -> None:
    prompt.wait_in(line)
    assert prompt.press(key) == status
    assert prompt.nothing_is_left()


def test_a_function_that_was_interrupted_leaves_the_shell_as_it_was(prompt: Prompt) -> None:
    show = "trap -p; ls /proc/$$/fd; echo ${!_LEASE__PENDING[@]}"
    prompt.enter("trap 'echo mine' USR1")
    before = prompt.output(show)
    prompt.wait_in(f"{IN_A_FUNCTION}; exit 99")
    assert prompt.press(CTRL_C) == "130"
    assert prompt.output(show) == before
    assert prompt.nothing_is_left()


def test_the_shells_own_handler_of_int_runs_and_the_wait_is_over(prompt: Prompt) -> None:
    prompt.enter("trap 'echo heard it' INT")
    prompt.wait_in(f"{IN_A_FUNCTION}; (exit $(($? + 40)))")
    prompt.type(CTRL_C)
    prompt.see("heard it")
    assert prompt.status() == "41"
    assert "heard it" in prompt.output("trap -p INT")
    assert prompt.nothing_is_left()


@pytest.mark.parametrize("line", [IN_A_FUNCTION, IN_A_SUBSHELL])
def test_a_function_is_not_stopped(prompt: Prompt, line: str) -> None:
    prompt.wait_in(line)
    prompt.type(CTRL_Z)
    prompt.see(WAITS)  # again, in the foreground
    prompt.press(CTRL_C)
    assert prompt.nothing_is_left()


@pytest.mark.parametrize("line", [ACQUIRE, RUN])
def test_a_command_is_stopped_and_goes_on_without_drawing_over_the_prompt(
    prompt: Prompt, line: str
) -> None:
    prompt.enter("stty tostop")
    prompt.wait_in(line)
    assert prompt.press(CTRL_Z) == "148"
    prompt.enter("bg")
    assert WAITS not in prompt.output("sleep 1.2"), "drawn once a second in the foreground"
    assert "Running" in prompt.output("jobs")
    prompt.wait_in("fg")
    assert prompt.press(CTRL_C) == "130"
    assert prompt.nothing_is_left()


@pytest.mark.parametrize("line", [ACQUIRE, RUN])
def test_a_command_in_the_background_says_a_line_as_in_a_log_and_draws_in_the_foreground(
    prompt: Prompt, line: str
) -> None:
    prompt.enter(f"{line} </dev/null &")
    prompt.see(f"leasectl: {WAITS}, 1/1 held, waited ")
    after = prompt.output("sleep 1.2")
    assert WAITS not in after and "\x1b[K" not in after, "drawn once a second in the foreground"
    prompt.type(b"fg\n")
    prompt.see(rf"\r\x1b\[K{WAITS}")
    assert prompt.press(CTRL_C) == "130"
    assert prompt.nothing_is_left()


@pytest.mark.parametrize("line", [ACQUIRE, RUN])
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_command_in_the_background_is_not_stopped_for_its_line(
    prompt: Prompt, line: str, term: str
) -> None:
    prompt.enter("stty tostop")
    prompt.enter(f"TERM={term} {line} </dev/null &")
    eventually(prompt.somebody_waits)
    assert WAITS not in prompt.output("sleep 1.2")
    assert "Running" in prompt.output("jobs")
    prompt.free()
    prompt.output("fg")
    assert not prompt.somebody_waits()


@pytest.mark.parametrize("line", [IN_A_FUNCTION, IN_A_SUBSHELL, ACQUIRE, RUN])
def test_a_closed_window_ends_the_wait(prompt: Prompt, line: str) -> None:
    prompt.wait_in(line)
    prompt.close_window()
    assert prompt.nothing_is_left()


def test_run_and_its_command_are_stopped_and_continued_together(prompt: Prompt) -> None:
    prompt.wait_in("leasectl run -t T -- sh -c 'echo begun; read line; exit 5'")
    prompt.free()
    prompt.see("begun\r\n")
    assert prompt.press(CTRL_Z) == "148"
    eventually(prompt.is_stopped)
    prompt.type(b"fg\n")
    prompt.see("exit 5'\r\n")  # what goes on, when Bash has let go of the terminal's keys
    prompt.type(b"go on\n")
    assert prompt.status() == "5"
