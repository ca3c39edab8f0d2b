"""A holder on the embedded pool whom a reclaim asks to give something back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.commands

RECLAIM = ("reclaim", "T", "--delay", "0", "-w", "10m", "-q")
# For what isn't to be had.
IN_VAIN = ("reclaim", "T", "--delay", "0", "-w", "1s", "-q")
TOO_FEW, NOT_ALLOWED, NOT_FOUND, USAGE = 75, 77, 66, 64


@pytest.fixture
def held(cli: Cli) -> str:
    """A handle of two that gives back what isn't in use."""
    cli.pool("T", "T--00", "T--01", "T--02")
    return cli.ok("acquire", "T", "-c", "2", "--on-reclaim", "release").rstrip()


class TestAHandle:
    def test_nobody_keeps_answers_by_a_keeper_that_is_started_for_it(
        self, cli: Cli, held: str
    ) -> None:
        cli.ok("use", held, "--name", "T--00")
        assert cli.ok(*RECLAIM, "--names", "T--01") == "T--01\n"
        assert cli(*IN_VAIN, "--names", "T--00").code == TOO_FEW
        assert Path(held).read_text() == "T--00"
        assert cli("use", held, "--name", "T--01").code == NOT_ALLOWED
        cli.ok("unuse", held, "--name", "T--00")
        assert cli.ok(*RECLAIM, "--names", "T--00") == "T--00\n"
        assert Path(held).read_text() == ""
        assert cli.ok("reacquire", held, "-q") == f"{held}\n"
        assert len(Path(held).read_text().split()) == 2

    def test_that_waits_or_is_released_uses_nothing(self, cli: Cli, held: str) -> None:
        cli.ok("release", held)
        assert cli("use", held, "--name", "T--00").code == NOT_ALLOWED
        cli.ok("unuse", held, "--name", "T--00")
        assert cli.ok("answer", held, "--ready") == ""

    def test_is_told_when_nothing_is_asked_for(self, cli: Cli, held: str) -> None:
        for command in (["marks", held], ["answer", held, "--ready"], ["answer", held, "--keep"]):
            finished = cli(*command)
            assert (finished.code, finished.out) == (0, "")
            assert len(finished.err.splitlines()) == 1
            what = "no reclaim asks" if command[0] == "marks" else "waits for an answer"
            assert what in finished.err

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            (["use", "H", "--name", "T--02"], NOT_ALLOWED),
            (["use", "H", "--name", "../x"], USAGE),
            (["use", "H"], USAGE),
            (["use", "nosuch", "--name", "T--00"], NOT_FOUND),
            (["use", "", "--name", "T--00"], NOT_ALLOWED),
            (["unuse", "nosuch", "--name", "T--00"], NOT_FOUND),
            (["marks", "nosuch"], NOT_FOUND),
            (["answer", "H"], USAGE),
            (["answer", "H", "--ready", "--keep"], USAGE),
            (["answer", "H", "--ready", "--names", "T--00"], NOT_FOUND),
        ],
        ids=str,
    )
    def test_is_told_what_is_wrong(self, cli: Cli, held: str, args: list[str], code: int) -> None:
        finished = cli(*(held if each == "H" else each for each in args))
        assert (finished.code, finished.out) == (code, "")
        assert len(finished.err.splitlines()) == 1
        assert cli.query("SELECT * FROM name_in_use") == []

    def test_of_a_backend_that_nobody_can_ask_is_refused(self, cli: Cli) -> None:
        finished = cli("acquire", "T", "--on-reclaim", "release", "--backend", "http://127.0.0.1:1")
        assert finished.code == USAGE
        assert "--on-reclaim release is not supported by http://127.0.0.1:1; local:" in finished.err


class TestARun:
    def test_has_a_command_decide_and_goes_on(self, cli: Cli) -> None:
        cli.pool("T", "T--00", "T--01")
        decides = 'cat; echo "for $@"; [ "$1" != T--01 ]'
        go = cli.cwd / "go"
        script = f'until [ -e {go} ]; do sleep 0.05; done; cat "$LEASECTL_HANDLE"'
        run = cli.start(
            "run", "T", "-c", "2", "--on-reclaim-command", decides, "--", "sh", "-c", script
        )
        eventually(lambda: cli.query("SELECT 1 FROM handle WHERE guard IS NOT NULL"))
        assert cli(*RECLAIM, "--names", "T--01").code == TOO_FEW
        assert cli.ok(*RECLAIM, "--names", "T--00") == "T--00\n"
        go.touch()
        finished = run.finish()
        assert (finished.code, finished.out) == (0, "T--01")
        assert finished.err.splitlines() == ["for T--01", "for T--00"]

    def test_of_two_ways_to_answer_takes_one(self, cli: Cli) -> None:
        cli.pool("T", "T--00")
        finished = cli(
            *("run", "T", "--on-reclaim", "keep", "--on-reclaim-command", "true", "--", "true")
        )
        assert finished.code == USAGE
