"""Pace, burst, aging and priority, as people give them and see them."""

from __future__ import annotations

import json
import re

import pytest

from tests.kit.support import Cli
from tests.kit.waits import eventually

# The code is the same on every Python, and waits in real time.
pytestmark = pytest.mark.once

USAGE, NOT_FOUND, UNREACHABLE, NO_LEASE = 64, 66, 69, 75
PROXY = "http://127.0.0.1:9"


def settings(cli: Cli, pool_type: str = "T") -> tuple[object, ...]:
    rows = cli.query(
        "SELECT pace_seconds, burst, aging_seconds FROM pool_setting WHERE type = ?", pool_type
    )
    return rows[0] if rows else (0, 1, 0)


def test_a_pool_is_made_with_them(cli: Cli) -> None:
    finished = cli("pool", "create", "T", "--count", "5", "--pace", "20s", "--aging", "30m")
    assert finished.err == (
        'leasectl: created pool "T" of 5 resources, T--00 … T--04; pace 20s, aging 30m\n'
    )
    assert settings(cli) == (20, 1, 1800)


def test_only_what_is_given_changes(cli: Cli) -> None:
    cli.pool("T")
    for args, after, said in (
        (("--pace", "1.5"), (1.5, 1, 0), "pace 1.5s (was pace none)"),
        (("--burst", "2", "--aging", "1h"), (1.5, 2, 3600), "pace 1.5s, burst 2, aging 1h (was"),
        (("--pace", "1m"), (60, 2, 3600), "(was pace 1.5s, burst 2, aging 1h)"),
        (("--pace", "60"), (60, 2, 3600), "pace 1m, burst 2, aging 1h (unchanged)"),
        # Without a pace there is nothing that a burst could be of.
        (("--pace", "0"), (0, 1, 3600), "pace none, aging 1h (was pace 1m, burst 2, aging 1h)"),
        (("--aging", "0"), (0, 1, 0), "pace none (was pace none, aging 1h)"),
    ):
        finished = cli("pool", "set", "T", *args)
        assert (finished.code, finished.out, settings(cli)) == (0, "", after)
        assert finished.err.startswith('leasectl: pool "T": ')
        assert said in finished.err
    assert cli("pool", "set", "T", "--pace", "1s", "-q").err == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "say what to change: --pace D, --burst N, --aging D, --property K=V"),
        (("--pace", "0.05"), "pace 0.05s: it can be 0.1s to 7d, or 0 for none"),
        (("--pace", "8d"), "pace 8d: it can be 0.1s to 7d"),
        (("--pace", "-1"), 'invalid duration "-1"'),
        (("--pace", "20x"), '--pace: invalid duration "20x"'),
        (("--pace", "0.001"), "pace 0.001s: it can be 0.1s to 7d"),
        (("--aging", "x"), '--aging: invalid duration "x"'),
        (("--pace", ""), 'invalid duration ""'),
        (("--burst", "0", "--pace", "1"), "burst 0: it can be 1 to 1000"),
        (("--burst", "1001", "--pace", "1"), "burst 1001: it can be 1 to 1000"),
        (("--burst", "2"), "burst 2 needs a pace"),
        (("--burst", "2", "--pace", "0"), "burst 2 needs a pace"),
        (("--aging", "0.5"), "aging 0.5s: it can be 1s to 30d, or 0 for none"),
        (("--aging", "31d"), "aging 31d: it can be 1s to 30d"),
    ],
)
def test_what_cant_be_meant_is_one_line_and_changes_nothing(
    cli: Cli, args: tuple[str, ...], said: str
) -> None:
    cli.pool("T")
    before = cli.snapshot()
    for command in (("set", "T"), ("create", "U", "--count", "1")):
        if args or command[0] == "set":
            finished = cli("pool", *command, *args)
            assert (finished.code, finished.out, finished.err.count("\n")) == (USAGE, "", 1)
            assert said in finished.err
    assert cli.snapshot() == before


class TestPriority:
    def test_it_is_the_variables_unless_it_is_given(self, cli: Cli) -> None:
        cli.pool("T")
        for args, variable, found in (
            ((), "100", 100),
            (("--priority", "3"), "100", 3),
            ((), "", 0),
            ((), None, 0),
        ):
            said = json.loads(cli.ok("acquire", "T", "--json", *args, LEASECTL_PRIORITY=variable))
            assert said["priority"] == found
            cli.ok("release", "--all")

    @pytest.mark.parametrize("value", ["101", "-101", "x", "1.5"])
    def test_what_is_none_is_refused(self, cli: Cli, value: str) -> None:
        for named, finished in (
            ("--priority", cli("acquire", "T", "--priority", value, LEASECTL_PRIORITY="1")),
            ("LEASECTL_PRIORITY", cli("run", "T", "--", "true", LEASECTL_PRIORITY=value)),
        ):
            assert finished.code == USAGE
            assert finished.err.replace('"', "").startswith(
                f"leasectl: {named} {value}: use a whole number from -100 to 100"
            )
        assert not cli.state_dir.exists()

    def test_there_the_variable_is_ignored_and_that_is_said_once(self, cli: Cli) -> None:
        args = ("run", "T", "--backend", PROXY, "-w", "0.1", "--attempts", "2", "--retry-on", "1")
        for options, times in (((), 1), (("-q",), 0)):
            finished = cli(*args, *options, "--", "true", LEASECTL_PRIORITY="5")
            assert finished.code in (UNREACHABLE, NO_LEASE)  # whichever is seen first
            assert finished.err.count(f"LEASECTL_PRIORITY is ignored: {PROXY}") == times


class TestShown:
    def test_status_says_when_the_pace_allows_the_next_grant_and_who_goes_first(
        self, cli: Cli
    ) -> None:
        cli.ok("pool", "create", "T", "--count", "3", "--pace", "1h")
        cli.ok("acquire", "T")
        waiters = [cli.start("acquire", "T", "--priority", each) for each in ("0", "-3", "7")]
        eventually(lambda: len(cli.waiting()) == 3)
        said = cli.ok("status", "T")
        assert re.search(r"^  next grant in (1h|59m\d+s)$", said, re.MULTILINE)
        (pool,) = json.loads(cli.ok("status", "--json"))["pools"]
        assert [each["priority"] for each in pool["queue"]] == [7, 0, -3]
        assert [each["effective_priority"] for each in pool["queue"]] == [7, 0, -3]
        titles, *rows = said[said.index("  POSITION") :].splitlines()
        priority = slice(titles.index("PRIORITY"), titles.index("PRIORITY") + len("PRIORITY"))
        assert [row[priority].strip() for row in rows] == ["7", "0", "-3"]
        refused = cli("acquire", "T", "-w", "0", "--priority", "100")
        assert refused.code == 75
        assert re.search(r"; next grant in (1h|59m\d+s); see the holders with", refused.err)
        assert all(each.process.poll() is None for each in waiters)

    def test_a_list_shows_them_where_there_are_any(self, cli: Cli) -> None:
        cli.pool("plain")
        cli.pool("T")
        cli.ok("pool", "set", "T", "--pace", "20s", "--burst", "2", "--aging", "30m")
        assert cli.ok("pool", "list").splitlines() == [
            "POOL   CAPACITY  FREE  HELD  WAITING  PACE  BURST  AGING",
            "T             2     2     0        0   20s      2    30m",
            "plain         2     2     0        0     -      -      -",
        ]
        found = {
            each["type"]: each for each in json.loads(cli.ok("pool", "list", "--json"))["pools"]
        }
        keys = ("pace_seconds", "burst", "aging_seconds", "next_grant_in_seconds")
        assert [found["T"][key] for key in keys] == [20, 2, 1800, 0]
        assert [found["plain"][key] for key in keys] == [0, 1, 0, 0]
