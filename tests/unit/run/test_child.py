"""leasectl.run.child: what a command begins with, and what is left of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from leasectl.run.child import CannotExecute, Child, CommandNotFound, Ending, find_command
from leasectl.system.clock import boottime_seconds
from leasectl.system.signals import SignalDescriptor
from tests.kit.descriptors import leaving_open


def child_of(signals: SignalDescriptor, *argv: str, ends_with_us: bool = False) -> Child:
    return Child(argv[0], argv, dict(os.environ), signals, ends_with_us=ends_with_us)


def program(path: Path, text: str = "#!/bin/sh\n", *, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_sigint_stays_ignored_if_it_was(
    signals: SignalDescriptor, handler: signal.Handlers
) -> None:
    """As of what a shell has in the background: Ctrl-C isn't meant for it."""
    before = signal.signal(signal.SIGINT, handler)
    read, write = os.pipe()
    argv = ("/bin/sh", "-c", "grep SigIgn /proc/self/status")
    child = Child(argv[0], argv, dict(os.environ), signals, stdout=write)
    signal.signal(signal.SIGINT, before)
    os.close(write)
    child.start()
    assert child.reap() == Ending(0)
    with os.fdopen(read) as said:
        ignored = int(said.read().split()[1], 16)
    assert bool(ignored & 1 << signal.SIGINT - 1) == (handler is signal.SIG_IGN)


@pytest.mark.parametrize("ends_with_us", [False, True])
@pytest.mark.parametrize("begins", [False, True])
def test_of_one_that_is_over_nothing_stays_open_and_nobody_is_left(
    signals: SignalDescriptor, begins: bool, ends_with_us: bool
) -> None:
    with leaving_open(0):
        child = child_of(signals, "/bin/true", ends_with_us=ends_with_us)
        if begins:
            child.start()
            assert child.reap() == Ending(0)
        else:
            child.abandon()
        child.kill_rest()
        for _ in range(2):  # it is let go once
            child.let_go()
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_reaches_it(signals: SignalDescriptor, signum: int) -> None:
    child = child_of(signals, "/bin/sleep", "60")
    child.start()
    child.signal(signum)
    assert child.reap() == Ending(None, signum)


def test_it_is_continued(signals: SignalDescriptor) -> None:
    child = child_of(signals, "/bin/sh", "-c", "kill -STOP $$; exit 3")
    child.start()
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    child.signal(signal.SIGCONT)
    assert child.reap() == Ending(3)


@pytest.mark.parametrize("ends_with_us", [False, True])
def test_one_that_is_killed_before_it_begins_says_so(
    signals: SignalDescriptor, ends_with_us: bool
) -> None:
    child = child_of(signals, "/bin/true", ends_with_us=ends_with_us)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    child.signal(signal.SIGTERM)  # which nobody gets any more
    child.start()
    assert child.reap() == Ending(None, signal.SIGKILL)


@pytest.mark.parametrize(
    ("text", "error"),
    [("#!/absent\n", CommandNotFound), ("#!/\n", CannotExecute)],
)
def test_one_that_can_not_become_the_command_says_why(
    signals: SignalDescriptor, tmp_path: Path, text: str, error: type[Exception]
) -> None:
    child = child_of(signals, program(tmp_path / "script", text))
    child.start()
    with pytest.raises(error, match="script: "):
        child.reap()


def test_one_that_no_program_can_be_started_with_has_not_succeeded(
    signals: SignalDescriptor,
) -> None:
    child = child_of(signals, "/bin/true", "a\0b")
    child.start()
    assert child.reap() == Ending(126)


def test_a_script_without_an_interpreter_line_gets_its_arguments(
    signals: SignalDescriptor, tmp_path: Path
) -> None:
    child = child_of(signals, program(tmp_path / "script", "exit $1$2\n"), "1", "2")
    child.start()
    assert child.reap() == Ending(12)


def test_only_one_that_ends_with_us_has_a_time_that_may_be_over(signals: SignalDescriptor) -> None:
    child = child_of(signals, "/bin/true")
    child.kill_at(boottime_seconds() - 1)
    assert not child.is_overdue()
    child.abandon()
    child = child_of(signals, "/bin/true", ends_with_us=True)
    for ahead, is_overdue in ((None, False), (1000, False), (-1, True), (None, False)):
        child.kill_at(None if ahead is None else boottime_seconds() + ahead)
        assert child.is_overdue() == is_overdue
    child.abandon()


class TestWhichFileACommandIs:
    def test_the_first_on_the_path_that_can_be_executed(self, tmp_path: Path) -> None:
        folders = [tmp_path / each for each in ("a", "b", "c", "d")]
        for folder in folders:
            folder.mkdir()
        (folders[0] / "tool").mkdir()
        program(folders[1] / "tool", mode=0o644)
        wanted = program(folders[2] / "tool")
        program(folders[3] / "tool")
        assert find_command("tool", ":".join(map(str, folders))) == wanted

    def test_one_with_a_slash_is_not_looked_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        program(tmp_path / "tool")
        assert find_command("./tool", "/bin") == "./tool"
        with pytest.raises(CommandNotFound, match="tool: command not found"):
            find_command("tool", "/bin")
        assert find_command("tool", "/bin:") == "tool"  # an empty folder is the current one

    def test_without_a_path_it_is_where_the_system_has_its_own(self) -> None:
        assert find_command("sh", "").endswith("/bin/sh")

    @pytest.mark.parametrize("looked_up", [False, True])
    def test_what_is_there_and_no_program_is_said(self, tmp_path: Path, looked_up: bool) -> None:
        path = program(tmp_path / "plain", mode=0o644)
        with pytest.raises(CannotExecute, match="Permission denied"):
            find_command("plain" if looked_up else path, f"{tmp_path}:/bin")

    def test_a_folder_is_none_and_on_the_path_it_is_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "tool").mkdir()
        with pytest.raises(CannotExecute, match="Is a directory"):
            find_command(str(tmp_path / "tool"), "/bin")
        with pytest.raises(CommandNotFound):
            find_command("tool", str(tmp_path))
