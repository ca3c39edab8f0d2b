"""A lease that is optional fails no installation, and a typo is no absence of a lease."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from tests.kit.faults.process import StartFaultProxy
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

# What is wrong with the command line itself, whatever a backend would say.
WRONG: dict[str, tuple[str, ...]] = {
    "an unknown backend": ("--backend", "gopher:"),
    "a count of none": ("-c", "0"),
    "a ttl that is too short": ("--ttl", "1"),
    "a name with a count": ("--name", "T--00", "-c", "2"),
    "more than etcd grants at once": ("-c", "61", "--backend", "etcd://127.0.0.1:9"),
    "what a lease proxy has no words for": ("-w", "0", "--backend", "http://127.0.0.1:9"),
    "no option": ("--retrials", "5"),
    "no duration": ("-w", "soon"),
    "no type": ("--type", "a/b"),
}
PATIENT = ("-w", "1h")
# What Python runs before anything else.
NO_PIDFDS = """
import os
def refuse(pid, flags=0):
    raise OSError({0}, os.strerror({0}))
os.pidfd_open = refuse
"""


@pytest.fixture
def no_state(cli: Cli) -> Cli:
    """Nothing works: what still fails, fails before anything is tried."""
    cli.state_dir.write_text("no folder")
    return cli


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_command_line_fails_before_the_command_runs(
    no_state: Cli, wrong: tuple[str, ...]
) -> None:
    assert_refused(no_state("run", "-t", "T", "--optional", *wrong, "--", "echo", "ran"))


def assert_refused(finished: Finished) -> None:
    assert (finished.code, finished.out) == (64, ""), finished
    assert "continuing without" not in finished.err


def test_what_leases_nothing_goes_on_where_nothing_can_be_written(no_state: Cli) -> None:
    no_state.env["LEASECTL_BACKEND"] = "none:"
    ran = no_state("run", "T", "--", "echo", "ran")
    assert (ran.code, ran.out, ran.err.count("\n")) == (0, "ran\n", 1)
    got = no_state("acquire", "T")
    assert (got.code, got.out, got.err.count("\n")) == (0, "", 1)


def test_a_guard_that_is_gone_fails_before_anything_is_tried(no_state: Cli) -> None:
    finished = no_state("acquire", "-t", "T", "--optional", *PATIENT, "--guard-pid", "999999999")
    assert (finished.code, "no such process" in finished.err) == (64, True)


@pytest.mark.parametrize("variable", ["LEASECTL_BACKEND", "LEASECTL_RELEASE_TIMEOUT"])
def test_so_does_a_wrong_environment(no_state: Cli, variable: str) -> None:
    args = ("run", "-t", "T", "--optional", *PATIENT, "--", "echo", "ran")
    assert_refused(no_state(*args, **{variable: "gopher:"}))


class TestWhatIsAnsweredAfterThat:
    """Each of these is answered by the backend or the machine, and the command runs."""

    def goes_on(self, cli: Cli, *args: str, **env: str) -> str:
        ran = cli("run", "--optional", *PATIENT, *args, "--", "echo", "ran", **env)
        assert (ran.code, ran.out) == (0, "ran\n"), ran
        acquired = cli("acquire", "--optional", *PATIENT, *args, **env)
        assert (acquired.code, acquired.out) == (0, ""), acquired
        assert ran.err == acquired.err
        assert ran.err.count("\n") == 1
        assert ran.err.startswith("leasectl: continuing without a lease (--optional): ")
        return ran.err

    def test_all_that_would_do_is_cordoned(self, cli: Cli) -> None:
        cli.pool("T", "T--00", "T--01")
        cli.ok("pool", "set", "T", "--names", "T--00", "--property", "zone=a")
        cli.ok("pool", "cordon", "--names", "T--00")
        for what in (("-c", "2"), ("--name", "T--00"), ("--where", "zone=a")):
            assert 'pool "T"' in self.goes_on(cli, "-t", "T", *what)

    def test_the_state_directory_is_none(self, no_state: Cli) -> None:
        assert "is not a directory" in self.goes_on(no_state, "-t", "T")

    def test_nobody_answers(self, cli: Cli) -> None:
        # A server that accepts connections and says nothing.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            etcd = ("--backend", f"etcd://127.0.0.1:{silent.getsockname()[1]}")
            wait = ("--optional", "-w", "2s", *etcd)
            finished = cli("acquire", "T", *wait, LEASECTL_RELEASE_TIMEOUT="0.1")
        assert finished.code == 0
        assert "no answer in time" in finished.err
        assert "continuing without a lease" in finished.err

    @pytest.mark.parametrize(
        "backend", ["http://127.0.0.1:9", "boskos+http://127.0.0.1:9?expire=30m"]
    )
    def test_nobody_is_there(self, cli: Cli, backend: str) -> None:
        finished = cli("acquire", "T", "--optional", "-w", "2s", "--backend", backend)
        assert finished.code == 0
        assert "\nleasectl: continuing without a lease (--optional): " in finished.err
        assert finished.err.endswith(": Connection refused; is the server there?\n")

    @pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
    def test_the_end_of_a_process_is_not_told(self, cli: Cli, tmp_path: Path, number: int) -> None:
        cli.pool("T")
        (tmp_path / "sitecustomize.py").write_text(NO_PIDFDS.format(number))
        why = "pidfd_open(2) doesn't work here"
        plain = [*cli.command("run", "T", "-q"), "--", "echo", "ran"]
        optional = [
            *cli.command("run", "T", "-q", "--optional"),
            "--",
            "sh",
            "-c",
            "echo ran; exit 3",
        ]
        for argv, code, out in ((plain, 1, ""), (optional, 3, "ran\n")):
            finished = cli.spawn(argv, PYTHONPATH=str(tmp_path)).finish()
            assert (finished.code, finished.out, why in finished.err) == (code, out, True)
        guarded = ["acquire", "T", "--guard-pid", str(os.getpid())]
        for more, code in (((), 1), (("--optional", "-w", "5"), 0)):
            finished = cli.spawn(cli.command(*guarded, *more), PYTHONPATH=str(tmp_path)).finish()
            assert (finished.code, finished.out, why in finished.err) == (code, "", True)
        assert cli.held() == {}

    def test_the_lease_proxy_refuses(self, cli: Cli, fault_proxy: StartFaultProxy) -> None:
        proxy = fault_proxy("T=1", faults=("400 path=acquire",))
        self.goes_on(cli, "-t", "T", "--backend", proxy.url)


def test_a_pool_that_shrinks_is_waited_for_and_one_that_goes_is_done_without(cli: Cli) -> None:
    cli.pool("T")
    cli.hold("T")
    run = cli.start("run", "-t", "T", "-c", "2", "--optional", *PATIENT, "--", "echo", "ran")
    while not cli.waiting():
        assert run.process.poll() is None
    cli.ok("pool", "remove", "T", "--names", "T--01")
    eventually(lambda: cli.query("SELECT 1 FROM suspended"), what="others may pass")
    assert run.process.poll() is None
    cli.ok("pool", "delete", "T", "--force")
    finished = run.finish()
    assert (finished.code, finished.out) == (0, "ran\n"), finished
    assert 'no pool "T"' in finished.err


class TestWithoutALimit:
    @pytest.mark.parametrize("command", [("acquire",), ("run", "--", "true")], ids=lambda c: c[0])
    def test_it_is_said_that_it_may_take_for_ever(self, cli: Cli, command: tuple[str, ...]) -> None:
        cli.pool("T", "a", "b", "c")
        args = (command[0], "-t", "T", "--optional")
        finished = cli(*args, *command[1:])
        assert finished.code == 0
        assert "may wait for ever" in finished.err and "-w" in finished.err
        assert cli(*args, "-w", "1h", *command[1:]).err == ""
        assert cli(*args, "-q", *command[1:]).err == ""


class TestAFurtherAttempt:
    OPTIONS = ("-t", "T", "--attempts", "3", "--retry-on", "4", "-w", "0.1", "-q")

    def test_that_gets_no_lease_leaves_how_the_command_ended(self, cli: Cli) -> None:
        cli.pool("T", "T--00")
        # What the attempt gives back, somebody else has before the next one asks.
        take = " ".join(cli.command("acquire", "-t", "T", "-q", "-w", "10m"))
        between = f"{take} >/dev/null"
        finished = cli(
            "run", *self.OPTIONS, "--before-retry", between, "--", "sh", "-c", "echo ran; exit 4"
        )
        assert (finished.code, finished.out) == (4, "ran\n"), finished
        assert "no further attempt" in finished.err

    def test_a_chosen_code_is_for_the_first_attempt(self, cli: Cli) -> None:
        cli.pool("T", "T--00")
        taken = cli.hold("T")
        assert taken.names == ("T--00",)
        assert cli("run", *self.OPTIONS, "-E", "9", "--", "true").code == 9

    def test_a_command_that_is_gone_by_then_is_said_to_be(self, cli: Cli, tmp_path: Path) -> None:
        cli.pool("T", "T--00")
        program = tmp_path / "program"
        program.write_text('#!/bin/sh\nchmod 644 "$0"\nexit 4\n')
        program.chmod(0o755)
        finished = cli("run", *self.OPTIONS, "--", str(program))
        assert finished.code == 126, finished
