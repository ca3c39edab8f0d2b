"""``leasectl reclaim`` and ``pool remove --when-ready``: what holders are ready to give back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from leasectl.cli.rendering.reclaim_progress import ReclaimProgress
from leasectl.reclaim.taking_back import Progress
from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

USAGE, NOT_FOUND, TOO_FEW = 64, 66, 75
SOON = ("--delay", "0.1s", "-w", "10m", "-q")
POOL = "T"


@pytest.fixture(autouse=True)
def pool(cli: Cli) -> None:
    cli.pool(POOL, "a", "b", "c", "d")


def hold(cli: Cli, *options: str, count: int = 2) -> str:
    guard = ("--guard-pid", str(os.getpid()))
    return cli.ok("acquire", POOL, "-c", str(count), *guard, *options).strip()


def marks(cli: Cli, handle: str) -> Any:
    return json.loads(cli.ok("marks", handle, "--json"))


def in_pool(cli: Cli) -> dict[str, Any]:
    (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
    return {each["name"]: each for each in pool["resources"]}


class TestReclaim:
    def test_prints_what_holders_were_ready_to_give_back(self, cli: Cli) -> None:
        handle = hold(cli, "--on-reclaim", "release")
        assert cli.ok("reclaim", POOL, "--excess", "2", *SOON) == "a\nb\n"
        assert Path(handle).read_text() == ""
        assert "by a reclaim" in cli.ok("events", "-n", "1")

    def test_who_was_asked_and_what_was_said_are_events(self, cli: Cli) -> None:
        handle = hold(cli, "--on-reclaim", "answer", count=3)
        following = cli.start("events", "-f", "-n", "0", "--json")
        eventually(lambda: cli.query("SELECT * FROM follower"))
        started = cli.start("reclaim", POOL, "--names", "a,b,c", *SOON)
        eventually(lambda: len(marks(cli, handle)) == 3, what="all are marked")
        cli.ok("answer", handle, "--keep", "--names", "b")
        cli.ok("answer", handle, "--ready", "--names", "a")
        answers = ("keep", "ready")
        eventually(lambda: not any(each["state"] in answers for each in marks(cli, handle)))
        started.signal(signal.SIGTERM)
        started.finish()
        *_, last = cli.ok("events", "--name", "c").splitlines()
        following.signal(signal.SIGINT)
        events = [json.loads(line) for line in following.finish().out.splitlines()]
        noted = [each for each in events if each["kind"] == "noted"]
        holder, *others = {each["holder_identity"] for each in events}
        assert (holder != "", others) == (True, [])
        said = {name: [e["reason"] for e in noted if e["names"] == [name]] for name in "abc"}
        said["b"] = said["b"][:3]  # it may have been asked for again, after a pause
        asked = f"asked by {holder.rpartition('/')[0]} to give it back"
        withdrawn = "the reclaim request was withdrawn"
        assert said == {
            "a": [asked, "answered ready"],
            "b": [asked, "answered keep", f"{withdrawn} (the last answer was keep)"],
            "c": [asked, f"{withdrawn} (no answer)"],
        }
        assert last.endswith(f"noted           T  c of {holder}: {withdrawn} (no answer)")

    def test_ends_with_75_where_holders_keep_what_they_have(self, cli: Cli) -> None:
        handle = hold(cli)
        finished = cli("reclaim", POOL, "--names", "a,b", *SOON)
        assert (finished.code, finished.out) == (TOO_FEW, "")
        assert "2 of 2 leases" in finished.err
        assert [each for each in finished.err.splitlines() if ": its holder" in each] == [
            "leasectl: a: its holder keeps it",
            "leasectl: b: its holder keeps it",
        ]
        assert marks(cli, handle) == []
        assert Path(handle).read_text().split() == ["a", "b"]

    def test_frees_nothing_without_an_answer(self, cli: Cli) -> None:
        handle = hold(cli, "--on-reclaim", "answer")
        finished = cli("reclaim", POOL, "--excess", "1", "--delay", "0.1", "-w", "0.2", "--json")
        assert finished.code == TOO_FEW
        reason = "no answer within 0.2s"
        assert json.loads(finished.out) == {
            "freed": [],
            "missing": 1,
            "not_freed": [
                {"name": "a", "reason": reason},
                {"name": "b", "reason": "not asked, as others were asked first"},
            ],
        }
        assert Path(handle).read_text().split() == ["a", "b"]

    def test_says_once_what_it_does_again_and_again(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        progress = ReclaimProgress(POOL, quiet=False)
        for _ in range(3):
            progress.note(Progress(2, 0, 5.0))
            progress.note(Progress(2, 2, None))
        assert capsys.readouterr().err.count("\n") == 2
        progress.note(Progress(1, 0, 5.0))
        assert "1 lease still to come back" in capsys.readouterr().err

    def test_takes_its_marks_off_when_it_is_interrupted(self, cli: Cli) -> None:
        handle = hold(cli, "--on-reclaim", "answer")
        started = cli.start("reclaim", POOL, "--excess", "2", *SOON, "--follow")
        eventually(lambda: len(marks(cli, handle)) == 2, what="both are marked")
        started.signal(signal.SIGTERM)
        assert started.finish().code == -signal.SIGTERM
        assert marks(cli, handle) == []

    def test_gives_up_once_nobody_reads_what_it_prints(self, cli: Cli) -> None:
        handle = hold(cli, "--on-reclaim", "answer")
        command = cli.command("reclaim", POOL, "--excess", "2", *SOON)
        script = 'mkfifo "$1"; "${@:2}" >"$1" & read -r <"$1"; wait $!'
        fifo = str(cli.state_dir.parent / "fifo")
        started = cli.spawn(["bash", "-c", f"{script}", "bash", fifo, *command])
        eventually(lambda: len(marks(cli, handle)) == 2, what="both are marked")
        started.kill()
        eventually(lambda: marks(cli, handle) == [], what="its marks are taken off")

    def test_says_only_what_it_would_do(self, cli: Cli) -> None:
        handle = hold(cli, "--on-reclaim", "release", count=3)
        cli.ok("use", handle, "--name", "a")
        finished = cli("reclaim", POOL, "--excess", "1", "--dry-run")
        assert finished.code == 0
        assert "one of 2 unused names of its handle" in finished.out
        assert "1 lease of the pool in use" in finished.err
        (found,) = json.loads(cli.ok("reclaim", POOL, "--excess", "1", "--dry-run", "--json"))
        assert (found["name"], found["marked"]) == ("b", False)
        assert marks(cli, handle) == []

    @pytest.mark.parametrize(("used", "said"), [((), "only 1"), (("a",), "none")])
    def test_says_that_too_few_could_be_asked_for(
        self, cli: Cli, used: tuple[str, ...], said: str
    ) -> None:
        handle = hold(cli, "--on-reclaim", "release", count=1)
        for name in used:
            cli.ok("use", handle, "--name", name)
        finished = cli("reclaim", POOL, "--excess", "5", "--dry-run")
        assert f"{said} could be asked for, of 5 leases wanted back; the rest" in finished.err

    def test_what_nobody_holds_is_back_already(self, cli: Cli) -> None:
        finished = cli("reclaim", POOL, "--names", "c")
        assert (finished.code, finished.out) == (0, "")
        assert finished.err.splitlines() == [
            "leasectl: c: not held",
            'leasectl: no lease of pool "T" had to be taken back',
        ]
        assert cli("reclaim", POOL, "--names", "c", "-q").err == ""
        assert cli.ok("reclaim", POOL, "--held-longer-than", "1h") == ""

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            ([POOL], USAGE),
            ([POOL, "--excess", "0"], USAGE),
            ([POOL, "--excess", "100001"], USAGE),
            ([POOL, "--excess", "9" * 20], USAGE),
            ([POOL, "--excess", "x"], USAGE),
            ([POOL, "--excess", "1", "--names", "a"], USAGE),
            ([POOL, "--names", ""], USAGE),
            ([POOL, "--names", "a,a"], USAGE),
            ([POOL, "--names", "a", "--group-by", "site"], USAGE),
            ([POOL, "--excess", "1", "--group-by", "../x"], USAGE),
            ([POOL, "--excess", "1", "--delay", "0"], USAGE),
            ([POOL, "--excess", "1", "-w", "0"], USAGE),
            ([POOL, "--excess", "1", "--delay", "-1"], USAGE),
            ([POOL, "--excess", "1", "--dry-run", "--follow"], USAGE),
            ([POOL, "--excess", "1", "--until-free", "0"], USAGE),
            ([POOL, "--names", "a", "--until-free", "1"], USAGE),
            ([POOL, "--excess", "1", "--leave-unused", "-1"], USAGE),
            ([POOL, "--held-longer-than", "1s", "--leave-unused", "1"], USAGE),
            (["--excess", "1"], USAGE),
            (["U", "--excess", "1"], NOT_FOUND),
            ([POOL, "--names", "z"], NOT_FOUND),
            ([POOL, "--excess", "1", "--backend", "none:"], USAGE),
        ],
        ids=lambda each: " ".join(each) if isinstance(each, list) else "",
    )
    def test_refuses_what_can_not_be_meant(self, cli: Cli, args: list[str], code: int) -> None:
        before = cli.snapshot()
        finished = cli("reclaim", *args)
        assert finished.code == code
        assert len(finished.err.splitlines()) == 1
        assert cli.snapshot() == before


class TestRemoveWhenReady:
    def test_takes_out_what_is_free_and_what_is_given_back(self, cli: Cli) -> None:
        hold(cli, "--on-reclaim", "release")
        cli.ok("pool", "remove", POOL, "--names", "a,d", "--when-ready", *SOON)
        assert sorted(in_pool(cli)) == ["b", "c"]

    def test_leaves_what_is_kept_as_it_was(self, cli: Cli) -> None:
        hold(cli)
        finished = cli("pool", "remove", POOL, "--names", "a,d", "--when-ready", *SOON)
        assert finished.code == TOO_FEW
        assert "a (its holder keeps it)" in finished.err
        assert sorted(in_pool(cli)) == ["a", "b", "c"]
        cli.ok("release", "--all")
        cli.ok("acquire", POOL, "--name", "a", "-w", "0")

    @pytest.mark.parametrize(
        "options", [("--delay", "1s"), ("-w", "1s"), ("--when-ready", "--force")], ids=" ".join
    )
    def test_refuses_what_does_not_go_with_it(self, cli: Cli, options: tuple[str, ...]) -> None:
        finished = cli("pool", "remove", POOL, "--names", "d", *options)
        assert finished.code == USAGE
        assert sorted(in_pool(cli)) == ["a", "b", "c", "d"]
