"""Where names are: ``leasectl pool move`` and its like, as people and scripts run them."""

from __future__ import annotations

import json
import re

import pytest

from leasectl.text.naming import reserved_type
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

USAGE, NOT_FOUND, NOT_ALLOWED = 64, 66, 77
WORK = reserved_type("0" * 64)


def names(cli: Cli, pool_type: str) -> list[str]:
    rows = cli.query("SELECT name FROM resource WHERE type = ? ORDER BY name", pool_type)
    return [str(name) for (name,) in rows]


@pytest.fixture
def pools(cli: Cli) -> Cli:
    """Two pools, A of a-1 and a-2, and B of b-1."""
    cli.pool("A", "a-1", "a-2")
    cli.pool("B", "b-1")
    return cli


def test_who_deletes_a_pool_hears_what_does_not_move_there_any_more(pools: Cli) -> None:
    handle = pools.ok("acquire", "-q", "-t", "A", "--name", "a-1").strip()
    pools.ok("pool", "move", "--names", "a-1", "--to", "B", "--when-free")
    deleted = pools("pool", "delete", "B", "-q")
    said = (
        "leasectl: these resources now stay in their pools when released, instead of moving to "
        '"B": a-1\n'
    )
    assert (deleted.code, deleted.err) == (0, said)
    pools.ok("release", "--handle", handle)
    assert names(pools, "A") == ["a-1", "a-2"]


def check_that_what_is_held_back_is_told_of(cli: Cli) -> None:
    cli.ok("pool", "set", "B", "--default", "--grace", "1h")
    cli.ok("pool", "add", "B", "--names", "n")
    assert re.search(
        r"^state      held back so that .*; can be granted in (59m\d+s|1h), at .* UTC$",
        cli.ok("pool", "of", "n"),
        re.MULTILINE,
    )
    told = json.loads(cli.ok("pool", "of", "n", "--json"))
    assert told["state"] == "held back"
    assert 3500 < told["held_back_seconds"] <= 3600
    cli.ok("pool", "cordon", "--names", "n")
    assert "UTC, cordoned: by " in cli.ok("pool", "of", "n")
    told = json.loads(cli.ok("pool", "of", "b-1", "--json"))
    assert (told["state"], told["held_back_seconds"]) == ("free", None)


class TestAdding:
    @pytest.mark.parametrize("command", [("add", "B"), ("create", "C"), ("expect", "B")])
    def test_what_another_pool_has_is_refused_with_it(
        self, pools: Cli, command: tuple[str, ...]
    ) -> None:
        before = pools.snapshot()["rows"]
        finished = pools("pool", *command, "--names", "n,a-1")
        assert (finished.code, finished.out) == (NOT_ALLOWED, "")
        assert finished.err == (
            'leasectl: resource "a-1" is in pool "A", and can be in one only; move it with: '
            f"leasectl pool move --names a-1 --to {command[1]}\n"
        )
        assert pools.snapshot()["rows"] == before


class TestMoving:
    def test_says_what_is_done(self, pools: Cli) -> None:
        held = pools.hold("A")
        finished = pools("pool", "move", "--names", "a-1,a-2,b-1", "--to", "B", "--when-free")
        assert finished == Finished(
            0,
            "",
            'leasectl: moved to pool "B": 1 resource, a-2\n'
            'leasectl: will move on release to pool "B": 1 resource, a-1\n'
            'leasectl: already in pool "B": 1 resource, b-1\n',
        )
        assert names(pools, "B") == ["a-2", "b-1"]
        pools.ok("release", "--handle", held.id)
        assert names(pools, "B") == ["a-1", "a-2", "b-1"]

    def test_that_is_called_off_says_so_and_is_told_as_an_event(self, pools: Cli) -> None:
        held = pools.hold("A")
        pools.ok("pool", "move", "--names", "a-1", "--to", "B", "--when-free")
        finished = pools("pool", "move", "--names", "a-1,a-2", "--to", "A")
        assert finished == Finished(
            0,
            "",
            'leasectl: move cancelled; stays in pool "A": 1 resource, a-1\n'
            'leasectl: already in pool "A": 1 resource, a-2\n',
        )
        assert ": 1 resource no longer to go to B" in pools.ok("events", "-t", "A")
        pools.ok("release", "--handle", held.id)
        assert names(pools, "A") == ["a-1", "a-2"]

    def test_serves_who_waits_and_tells_whom_it_leaves_without(self, pools: Cli) -> None:
        pools.hold("B")
        held = pools.hold("A")
        pools.hold("A")
        both = pools.start("acquire", "A", "-c", "2")
        eventually(pools.waiting)
        (here,) = pools.waiting()
        waiter = pools.start("acquire", "B", "--output", "names")
        eventually(lambda: len(pools.waiting()) == 2)
        pools.ok("release", "--handle", held.id)
        finished = pools("pool", "move", "--names", "a-1", "--to", "B", "-q")
        assert waiter.finish().out == "a-1\n"
        assert (finished.code, finished.err.count("\n")) == (0, 1)
        assert here in finished.err
        assert both.process.poll() is None


class TestJoining:
    def test_as_held_prints_a_handle_like_any_other(self, pools: Cli) -> None:
        handle = pools("pool", "join", "A", "--name", "n", "--hold").handle
        assert pools.ok("cat", "--handle", handle) == "n\n"
        told = json.loads(pools.ok("cat", "--handle", handle, "--format", "json"))
        assert (told["state"], told["type"], told["scope"]) == ("held", "A", "step")
        pools.ok("renew", "--handle", handle)
        assert pools("acquire", "A", "--name", "n", "-w", "0").code == 75
        assert pools.ok("release", "--handle", handle) == "n\n"
        assert pools.ok("acquire", "A", "--name", "n", "-w", "0", "--output", "names") == "n\n"

    def test_as_held_again_prints_the_same_handle(self, pools: Cli) -> None:
        first = pools("pool", "join", "A", "--name", "n", "--hold").handle
        again = pools("pool", "join", "A", "--name", "n", "--hold", "--ttl", "1h").handle
        assert again == first
        assert "for 1h" in pools.ok("pool", "of", "n")

    @pytest.mark.parametrize("hold", [("--hold",), ()])
    def test_again_calls_off_that_it_is_to_leave(self, pools: Cli, hold: tuple[str, ...]) -> None:
        join = ("pool", "join", "A", "--name", "n")
        handle = pools(*join, "--hold").handle
        pools.ok("pool", "leave", "A", "--name", "n")
        held = ", held" if hold else ""
        said = f'leasectl: joined again, and no longer about to leave{held}: "n" in pool "A"\n'
        assert pools(*join, *hold).err == said
        assert pools(*join, *hold).err == f'leasectl: joined again{held}: "n" in pool "A"\n'
        assert pools.ok("events", "--name", "n").count("no longer to leave") == 1
        pools.ok("release", "--handle", handle)
        assert "n" in names(pools, "A")

    def test_whose_handle_nobody_heard_of_is_none(self, pools: Cli) -> None:
        command = " ".join(pools.command("pool", "join", "A", "--name", "n", "--hold"))
        assert pools.spawn(["sh", "-c", f"{command} >/dev/full"]).finish().code == 1
        assert names(pools, "A") == ["a-1", "a-2"]
        assert pools.query("SELECT * FROM handle") == []

    def test_who_has_left_may_leave_again_but_from_no_other_pool(self, pools: Cli) -> None:
        pools.ok("pool", "leave", "A", "--name", "a-1")
        before = pools.snapshot()["rows"]
        again = 'leasectl: not in pool "A", nor in any other: "a-1"\n'
        assert pools("pool", "leave", "A", "--name", "a-1") == Finished(0, "", again)
        assert pools("pool", "leave", "A", "--name", "a-1", "-q") == Finished(0, "", "")
        elsewhere = pools("pool", "leave", "A", "--name", "b-1")
        assert (elsewhere.code, elsewhere.out) == (NOT_FOUND, "")
        assert 'resource "b-1" is in pool "B", not in pool "A"' in elsewhere.err
        assert pools("pool", "leave", "nosuch", "--name", "a-1").code == NOT_FOUND
        assert pools.snapshot()["rows"] == before


@pytest.mark.parametrize(
    "command", [("expect", WORK, "--names", "n"), ("move", "--names", "a-1", "--to", WORK)]
)
def test_no_name_comes_to_where_work_is_done(pools: Cli, command: tuple[str, ...]) -> None:
    finished = pools("pool", *command)
    assert finished.code == USAGE
    assert "is reserved for leasectl once" in finished.err


class TestExpecting:
    def test_is_listed_and_dropped(self, pools: Cli) -> None:
        pools.ok("pool", "expect", "A", "--names", "a-1,n", "--match", "x-*", "--match", "?")
        assert pools.ok("pool", "expect", "--list").splitlines() == [
            "POOL  NAMES  NOW IN",
            "A     a-1    A",
            "A     n      no pool yet",
            "A     ?",
            "A     x-*",
        ]
        told = json.loads(pools.ok("pool", "expect", "A", "--list", "--json"))
        assert told["expectations"][0] == {"name": "a-1", "pattern": None, "type": "A", "pool": "A"}
        pools.ok("pool", "expect", "A", "--names", "a-1,n", "--match", "x-*", "--drop")
        assert pools.ok("pool", "expect", "--list").splitlines()[1:] == ["A     ?"]
        assert json.loads(pools.ok("pool", "expect", "B", "--list", "--json"))["expectations"] == []

    @pytest.mark.parametrize("more", [("--match", "x-*"), ("--match", "x-*", "--drop")])
    def test_of_names_and_a_pattern_is_all_or_nothing(
        self, pools: Cli, more: tuple[str, ...]
    ) -> None:
        pools.ok("pool", "expect", "B", "--match", "x-*")
        pools.ok("pool", "expect", "A", "--names", "n")
        before = pools.snapshot()["rows"]
        name = "n" if "--drop" in more else "other"
        assert pools("pool", "expect", "A", "--names", name, *more).code in (NOT_ALLOWED, NOT_FOUND)
        assert pools.snapshot()["rows"] == before

    def test_tells_of_a_request_that_it_makes_impossible(self, pools: Cli) -> None:
        pools.ok("pool", "set", "B", "--default", "--grace", "0")
        pools.ok("pool", "add", "B", "--names", "n-1")
        handle = pools.ok("acquire", "B", "--count", "2").rstrip("\n")
        waiting = pools.start("acquire", "B", "--count", "2")
        eventually(lambda: pools.query("SELECT number FROM ticket"))
        said = pools("pool", "expect", "A", "--names", "n-1").err
        assert " keeps waiting: " in said
        pools.ok("release", handle)
        waiting.kill()

    def test_of_all_names_leaves_work_that_is_done_once_alone(self, pools: Cli) -> None:
        pools.ok("pool", "expect", "A", "--match", "*")
        assert pools.ok("once", "build", "--keep", "1h", "--", "echo", "done") == "done\n"

    def test_answers_for_what_isnt_there_yet(self, pools: Cli) -> None:
        pools.ok("pool", "expect", "B", "--match", "n-*")
        assert pools.ok("pool", "of", "n-1", "--format", "type") == "B\n"
        assert pools.ok("pool", "of", "n-1").splitlines() == [
            "name       n-1",
            "pool       none yet",
            "belongs to B (matches n-*)",
        ]
        told = json.loads(pools.ok("pool", "of", "n-1", "--json"))
        assert (told["type"], told["pool"], told["pattern"]) == ("B", None, "n-*")

    def test_of_what_is_held_back_says_until_when(self, pools: Cli) -> None:
        check_that_what_is_held_back_is_told_of(pools)


def test_a_cordon_keeps_new_holders_off_and_is_told_of(pools: Cli) -> None:
    held = pools.hold("B")
    waiter = pools.start("acquire", "B", "--output", "names")
    eventually(pools.waiting)
    finished = pools("pool", "cordon", "--names", "b-1")
    assert finished.err.splitlines()[0] == "leasectl: cordoned: 1 resource, b-1"
    assert pools.waiting()[0] in finished.err
    assert "held" in pools.ok("pool", "of", "b-1")
    pools.ok("release", "--handle", held.id)
    assert "cordoned" in pools.ok("pool", "of", "b-1")
    assert pools("pool", "cordon", "--names", "b-1,a-1").err.startswith(
        "leasectl: cordoned: 1 resource, a-1\nleasectl: already cordoned: 1 resource, b-1\n"
    )
    pools.ok("pool", "uncordon", "--names", "b-1")
    assert pools("pool", "uncordon", "--names", "b-1,a-1").err == (
        "leasectl: uncordoned: 1 resource, a-1\nleasectl: already uncordoned: 1 resource, b-1\n"
    )
    assert waiter.finish().out == "b-1\n"


def test_every_view_shows_who_cordoned_and_why(pools: Cli) -> None:
    pools.ok("pool", "cordon", "--names", "b-1", "--reason", "disk full")
    why = r"disk full, by \S+ since 20\d\d-\d\d-\d\d \d\d:\d\d UTC\n"
    assert re.search(why, pools.ok("pool", "of", "b-1"))
    assert re.search(why, pools.ok("status", "B"))
    (pool,) = json.loads(pools.ok("status", "B", "-o", "json"))["pools"]
    assert (pool["resources"][0]["state"], pool["held"]) == ("cordoned", 0)
    cordon = pool["resources"][0]["membership"]["cordon"]
    assert cordon["reason"] == "disk full"
    assert json.loads(pools.ok("pool", "of", "b-1", "--json"))["cordon"] == cordon
    refused = pools("pool", "cordon", "--names", "b-1", "--reason", "two\nlines")
    assert (refused.code, "one printable line" in refused.err) == (USAGE, True)


def test_a_list_is_refused_where_an_expectation_contradicts_it(pools: Cli) -> None:
    pools.ok("pool", "expect", "B", "--names", "n")
    (pools.cwd / "list").write_text("resources:\n- type: A\n  names:\n  - a-1\n  - n\n")
    before = pools.snapshot()["rows"]
    finished = pools("pool", "apply", "-f", "list")
    assert finished.code == NOT_ALLOWED
    assert 'list:5: "n" is listed in pool "A", but is expected in pool "B"' in finished.err
    assert pools.snapshot()["rows"] == before


def test_a_list_undoes_no_join(pools: Cli) -> None:
    pools.ok("pool", "join", "A", "--name", "n", "--ttl", "1h")
    (pools.cwd / "list").write_text("resources: [{type: A, names: [a-1, a-2]}]")
    said = 'pool "A": 1 resource (n) left alone, because'
    assert said in pools("pool", "apply", "-f", "list", "--dry-run").err
    assert said in pools("pool", "apply", "-f", "list").err
    assert names(pools, "A") == ["a-1", "a-2", "n"]
    (pools.cwd / "list").write_text("resources: [{type: B, names: [b-1, n]}]")
    said = 'pool "B": 1 resource (n) left alone in pool "A", because'
    assert said in pools("pool", "apply", "-f", "list").err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("move", "--names", "a-1,a-1", "--to", "B"), '"a-1" is given twice'),
        (("move", "--names", "", "--to", "B"), "one of the names is empty"),
        (("move", "--names", "a/1", "--to", "B"), "not allowed"),
        (("move", "--names", "a-1"), "--to"),
        (("cordon",), "--names"),
        (("expect", "A"), "--names"),
        (("expect",), "--list"),
        (("expect", "A", "--match", "a/*"), "not allowed"),
        (("expect", "A", "--match", "a *"), "not allowed"),
        (("expect", "A", "--match", "[a-z]"), "not allowed"),
        (("expect", "A", "--match", ""), "not allowed"),
        (("expect", "A", "--match", "\x1b[31m"), "not allowed"),
        (("expect", "A", "--match", "n" * 254), "254 characters"),
        (("expect", "--list", "--drop"), "leave out"),
        (("expect", "A", "--names", "n", "--json"), "--list"),
        (("join", "A"), "--name"),
        (("join", "A", "--name", "n", "--ttl", "1h", "--while-pid", "1"), "either --ttl"),
        (("join", "A", "--name", "n", "--ttl", "1s"), "too short"),
        (("join", "A", "--name", "n", "--while-pid", "0"), "is not a process id"),
        (("join", "A", "--name", "n", "--while-pid", "99999999"), "no such process"),
        (("join", "A", "--name", "n", "--guard-pid", "1"), "--hold"),
        (("join", "A", "--name", "n", "--hold", "--guard-pid", "99999999"), "no such process"),
        (("join", "A", "--name", "$(id)"), "not allowed"),
        (("set", "A", "--grace=-1"), "invalid duration"),
        (("set", "A", "--grace", "31d"), "it can be 0 to 30d"),
        (("set", "A", "--grace", "1m"), "--default"),
        (("set", "A", "--default", "--no-default"), "contradict each other"),
        (("set", "A", "--no-default", "--grace", "1m"), "--grace"),
        (("of", "a b"), "not allowed"),
        (("of", "a-1", "--format", "type", "--json"), "use either"),
    ],
)
def test_what_cant_be_meant_is_one_line_and_changes_nothing(
    pools: Cli, args: tuple[str, ...], said: str
) -> None:
    before = pools.snapshot()
    finished = pools("pool", *args)
    assert (finished.code, finished.out, finished.err.count("\n")) == (USAGE, "", 1)
    assert said in finished.err
    assert "\x1b" not in finished.err
    assert pools.snapshot() == before


@pytest.mark.parametrize(
    "args",
    [
        ("move", "--names", "a-1,z", "--to", "B"),
        ("move", "--names", "a-1", "--to", "Z"),
        ("cordon", "--names", "a-1,z"),
        ("leave", "A", "--name", "b-1"),
        ("join", "Z", "--name", "n"),
        ("join", "Z", "--name", "n", "--hold"),
        ("expect", "Z", "--names", "n"),
        ("expect", "Z", "--match", "n"),
        ("expect", "A", "--names", "n", "--drop"),
        ("expect", "A", "--match", "n", "--drop"),
        ("set", "Z", "--default"),
        ("of", "z"),
    ],
)
def test_what_isnt_there_is_said_and_nothing_changes(pools: Cli, args: tuple[str, ...]) -> None:
    before = pools.snapshot()["rows"]
    finished = pools("pool", *args)
    assert (finished.code, finished.out, finished.err.count("\n")) == (NOT_FOUND, "", 1)
    assert pools.snapshot()["rows"] == before


def test_what_is_in_no_pool_is_said_with_a_whole_command(pools: Cli) -> None:
    finished = pools("pool", "cordon", "--names", "z")
    assert finished.err.endswith("; add it with: leasectl pool add POOL --names z\n")


def test_a_backend_without_pools_says_so(cli: Cli) -> None:
    for args in (
        ("of", "n"),
        ("expect", "--list"),
        ("join", "A", "--name", "n", "--hold"),
        ("move", "--names", "n", "--to", "A"),
    ):
        finished = cli("pool", *args, "--backend", "none:")
        assert (finished.code, finished.out) == (USAGE, "")
        assert "local:" in finished.err


def test_the_lists_of_names_fit_a_terminal(pools: Cli) -> None:
    pools.ok("pool", "expect", "A", "--names", f"{'n' * 200}-1")
    lines = pools.ok("pool", "expect", "--list", COLUMNS="60").splitlines()
    assert max(map(len, lines)) <= 60
    assert len(pools.ok("pool", "expect", "--list", "--wide", COLUMNS="60").splitlines()[1]) > 200
