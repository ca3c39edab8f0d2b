"""``leasectl simulate``, as people call it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from leasectl.pools.history import encode_event
from leasectl.state.event import Event
from leasectl.text.durations import format_seconds
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

# The code is the same on every Python.
pytestmark = pytest.mark.once

USAGE, NOT_FOUND = 64, 66
# The question that simulations are there to answer: 50 install leases of 20 minutes.
POLICIES = ("none", "jitter=15m", "pace=24s", "pace=20s")
ASKED = tuple(word for policy in POLICIES for word in ("--policy", policy))
SIX = ("--capacity", "6", "--hold", "2m", "--arrivals", "20")
FIFTY = ("--capacity", "50", "--hold", "20m")
PAGE = Path(__file__).parents[3] / "docs" / "simulation.md"


def simulated(cli: Cli, *args: str) -> dict[str, Any]:
    finished = cli("simulate", *args, "--json")
    assert (finished.code, finished.err) == (0, "")
    found: dict[str, Any] = json.loads(finished.out)
    return found


def peaks(found: dict[str, Any]) -> list[int]:
    return [each["peak_starts_within_a_minute"] for each in found["policies"]]


def minutes(found: dict[str, Any]) -> list[float]:
    return [each["makespan_seconds"] / 60 for each in found["policies"]]


def refused(finished: Finished, said: str) -> None:
    assert finished.code == USAGE
    assert finished.out == ""
    assert finished.err.startswith("leasectl: ")
    assert finished.err.count("\n") == 1
    assert said in finished.err


@pytest.mark.parametrize(
    ("arrivals", "hold", "expected_peaks", "expected_minutes"),
    [
        ("500", "20m", (50, (29, 44), 3, 3), (200, 201, 220, 216)),
        ("20x50/15m", "20m", (50, (6, 11), 3, 3), (400, 415, 420, 416)),
        ("20x50/15m", "20m+-20%", (50, (8, 12), 3, 3), (414, 425, 447, 431)),
        ("2/m:8h20m", "20m", ((7, 11), (7, 11), 3, 3), (513, 525, 514, 514)),
    ],
)
def test_the_table_of_how_to_stagger_comes_out(
    cli: Cli,
    arrivals: str,
    hold: str,
    expected_peaks: tuple[Any, ...],
    expected_minutes: tuple[float, ...],
) -> None:
    found = simulated(cli, "--capacity", "50", "--hold", hold, "--arrivals", arrivals, *ASKED)
    assert [each["policy"] for each in found["policies"]] == list(POLICIES)
    for peak, expected in zip(peaks(found), expected_peaks):
        low, high = expected if isinstance(expected, tuple) else (expected, expected)
        assert low <= peak <= high
    for here, there in zip(minutes(found), expected_minutes):
        assert here == pytest.approx(there, rel=0.05)
    # The table in the docs is what people get.
    times = [format_seconds(each["makespan_seconds"]) for each in found["policies"]]
    row = " | ".join(f"{peak}, {time}" for peak, time in zip(peaks(found), times))
    assert f" | {row} |\n" in PAGE.read_text(encoding="utf-8")


def test_people_get_a_table_and_a_picture_of_80_columns(cli: Cli) -> None:
    finished = cli("simulate", *FIFTY, "--arrivals", "500", COLUMNS="80")
    assert (finished.code, finished.err) == (0, "")
    lines = finished.out.splitlines()
    assert lines[0] == "500 jobs at once, each holds 20m; capacity 50"
    assert lines[1].split() == "POLICY PEAK/MIN UTILISATION WAIT P50 P95 MAX MAKESPAN".split()  # noqa: SIM905
    assert lines[2].split()[:3] == ["none", "50", "100%"]
    assert lines[3].split()[:2] == ["pace=20s", "3"]  # which is what is advised
    assert "starts in a minute" in finished.out
    assert max(map(len, lines)) <= 80
    table = cli("simulate", *FIFTY, "--arrivals", "500", "--no-picture", COLUMNS="80")
    assert table.out.splitlines() == lines[:4]


def test_the_same_seed_twice_gives_the_same_bytes_and_another_does_not(cli: Cli) -> None:
    jobs = ("--capacity", "9", "--hold", "5m+-50%", "--arrivals", "3/m:1h")
    policies = ("jitter=3m,start-jitter=2m", "release-after=2m-9m,pace=1s")
    args = (*jobs, *(word for policy in policies for word in ("--policy", policy)))
    first, again, other = (
        cli("simulate", *args, "--seed", seed, PYTHONHASHSEED=salt)
        for seed, salt in (("7", "1"), ("7", "2"), ("8", "1"))
    )
    assert first.code == 0
    assert first.out == again.out
    assert first.out != other.out


def test_a_search_for_a_capacity_says_under_which_policy_and_which_pace_keeps_the_peak(
    cli: Cli,
) -> None:
    args = ("--hold", "10m", "--arrivals", "30", "--find", "capacity", "--wait-p95", "10m")
    finished = cli("simulate", *args, "--peak", "7")
    assert finished.code == 1
    assert finished.err == (
        "leasectl: no capacity meets these limits under the policy none; 15 comes nearest, as "
        "shown; a pace can meet --peak: try --policy pace=8.6s\n"
    )
    paced = cli("simulate", *args, "--peak", "7", "--policy", "pace=8.6s")
    assert paced.code == 0
    assert "that meets the limits under the policy pace=8.6s: " in paced.out
    jittered = cli("simulate", *args, "--peak", "7", "--policy", "start-jitter=1m")
    assert jittered.err.endswith("comes nearest, as shown\n")


def test_arrivals_and_holds_come_from_files(cli: Cli, tmp_path: Path) -> None:
    jobs, holds = tmp_path / "jobs.csv", tmp_path / "holds"
    jobs.write_text("at,count,priority,hold\n0,2,,10m\n1m,,-1,\n2m,,5,\n")
    holds.write_text("99h\n3m\n4m\n")
    found = simulated(
        cli, "--capacity", "2", "--arrivals", str(jobs), "--hold", str(holds), "--policy", "none"
    )
    # The last goes before the second, and both fit at once.
    assert found["policies"][0]["wait_seconds"] == {"p50": 480, "p95": 540, "max": 540}
    assert found["policies"][0]["makespan_seconds"] == 14 * 60
    command = cli.command("simulate", "--capacity", "2", "--arrivals", "-", "--hold", "1m")
    from_stdin = cli.spawn(["sh", "-c", f"{shlex.join(command)} <{jobs}"]).finish()
    assert from_stdin.out.startswith("3 jobs of stdin, each holds 1m; capacity 2")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--capacity", "0", "--hold", "20m", "--arrivals", "5"), "--capacity"),
        ((*FIFTY, "--arrivals", "5", "--policy", "jiter=5m"), 'did you mean "jitter"'),
        ((*FIFTY, "--arrivals", "5", "-c", "51"), "job 1 asks for 51 resources"),
        ((*FIFTY, "--arrivals", "5", "--peak", "3"), "--find"),
        ((*FIFTY,), "--arrivals"),
        (("--hold", "20m", "--arrivals", "5"), "--capacity"),
        (("--hold", "20m", "--arrivals", "5", "--find", "pace", "--peak", "3"), "--capacity N"),
        (
            (*SIX, "--find", "capacity", "--wait-max", "1h"),
            "either --capacity or --find capacity",
        ),
        (("--replay", "events", "--count", "5"), "--count can't be combined with --replay"),
        (("--replay",), "POOL"),
    ],
)
def test_what_can_not_be_meant_is_refused_in_one_line(
    cli: Cli, args: tuple[str, ...], said: str
) -> None:
    refused(cli("simulate", *args), said)


def test_a_hostile_line_is_named_and_not_shown_as_it_is(cli: Cli, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("at,name\n0,\x1b]0;owned\x07\n")
    finished = cli("simulate", *FIFTY, "--arrivals", str(jobs))
    refused(finished, "jobs.csv:2: ")
    assert "\x1b" not in finished.err
    events = tmp_path / "events"
    events.write_text("{}\n")
    refused(cli("simulate", "--replay", str(events)), "events:1: ")
    cli.pool("T")
    cli.hold("T")
    event = json.loads(cli.ok("events", "--json").splitlines()[-1])
    events.write_text(json.dumps({**event, "time": "yesterday"}))
    refused(cli("simulate", "--replay", str(events)), "events:1: ")
    events.write_bytes(b"\xff\xfe\n")
    refused(cli("simulate", "--replay", str(events)), "UTF-8")


class TestOfAPool:
    @pytest.fixture
    def pool(self, cli: Cli) -> Cli:
        cli("pool", "create", "T", "--count", "3", "--pace", "4s", "-q")
        return cli

    def test_what_it_granted_is_replayed(self, pool: Cli, tmp_path: Path) -> None:
        pool("pool", "set", "T", "--pace", "0", "-q")
        for _ in range(3):
            pool("release", "--all") if pool("acquire", "T", "-w", "0").code == 0 else None
        found = simulated(pool, "T", "--replay")
        assert found["jobs"] == 3
        assert [each["policy"] for each in found["policies"]] == ["as recorded", "none"]
        recorded, replayed = found["policies"]
        # Each is granted when it came, and not as much later as it was on this machine.
        late = replayed["largest_deviation"] * recorded["makespan_seconds"]
        assert late <= recorded["wait_seconds"]["max"] + 0.002
        events = tmp_path / "events.jsonl"
        events.write_text(pool("events", "T", "--json").out)
        for replay in (("T", "--replay"), ("--replay", str(events))):
            larger = simulated(pool, *replay, "--capacity", "30")
            assert larger["capacity"] == 30
            used, tried = (each["utilisation"] for each in larger["policies"])
            assert used == pytest.approx(recorded["utilisation"], rel=0.001)
            assert 0 < tried < used / 5
        searched = simulated(pool, "T", "--replay", "--find", "capacity", "--wait-max", "1m")
        assert (searched["capacity"], searched["found"]) == (1, 1)
        assert searched["policies"][0] == found["policies"][0]
        for args in (("--replay", str(events)), ("-t", "T", "--replay", str(events))):
            again = simulated(pool, *args, "--policy", "none")
            assert peaks(again) == peaks(found)
            assert minutes(again) == pytest.approx(minutes(found), rel=0.001)  # of microseconds

    def test_how_near_it_comes_is_said_of_the_policy_that_was_in_force(
        self, pool: Cli, tmp_path: Path
    ) -> None:
        pool("pool", "set", "T", "--pace", "0.1s", "-q")
        for _ in range(3):
            pool.ok("release", pool.ok("acquire", "T").strip())
        tried = ("--no-picture", "--policy", "none", "--policy", "pace=0.1s")
        near = re.compile(
            r"^policy (.*): simulated grants differ .*% of the makespan, \S+\)$", re.M
        )

        def said(*args: str) -> list[str]:
            return near.findall(pool.ok("simulate", *args))

        assert said("T", "--replay", *tried) == ["pace=0.1s"]
        assert said("T", "--replay", "--policy", "none") == []
        assert said("T", "--replay", "--capacity", "9", *tried) == []
        events = tmp_path / "events.jsonl"
        events.write_text(pool.ok("events", "T", "--json"))
        assert said("--replay", str(events), *tried) == ["none"]
        found = simulated(pool, "T", "--replay", *tried)["policies"]
        assert [each["largest_deviation"] is None for each in found] == [True, False, False]

    def test_who_got_nothing_and_asked_for_too_much_is_left_out(
        self, cli: Cli, tmp_path: Path
    ) -> None:
        events = tmp_path / "events.jsonl"
        told = [
            Event(1, 100.0, "queued", "T", handle="a", acquisition=1, count=9),
            Event(2, 100.1, "gave up", "T", handle="a", acquisition=1, count=9, wait_seconds=0.1),
            Event(3, 101.0, "queued", "T", handle="b", acquisition=1, count=2),
            Event(4, 101.0, "granted", "T", ("x", "y"), (), "b", 1, count=2, wait_seconds=0.0),
            Event(5, 131.0, "released", "T", ("x", "y"), (), "b", 1, count=2, hold_seconds=30.0),
        ]
        lines = [json.dumps(encode_event(each)) + "\n" for each in told]
        events.write_text("".join(lines))
        finished = cli("simulate", "--replay", str(events), "--policy", "none", "--json")
        assert finished.code == 0
        capacity, left_out = finished.err.splitlines()
        assert "capacity 2 is taken from the events; change it with --capacity" in capacity
        assert "left out 1 job that asked for more than the capacity of 2" in left_out
        found = json.loads(finished.out)
        assert (found["jobs"], found["capacity"]) == (1, 2)
        assert [each["gave_up"] for each in found["policies"]] == [0, 0]
        assert [each["makespan_seconds"] for each in found["policies"]] == [30.0, 30.0]
        large = cli("simulate", "--replay", str(events), "--capacity", "9", "--json")
        assert (large.code, large.err) == (0, "")
        assert json.loads(large.out)["jobs"] == 2
        small = cli("simulate", "--replay", str(events), "--capacity", "1")
        assert (small.code, small.out) == (USAGE, "")
        assert small.err.endswith("asks for 2 resources, and the capacity is 1\n")
        made = json.dumps(encode_event(Event(1, 99.0, "pool made", "T", ("x", "y"), count=2)))
        events.write_text("".join([made + "\n", *lines[:2]]))
        nothing = cli("simulate", "--replay", str(events), "--capacity", "4")
        assert (nothing.code, nothing.err.count("\n")) == (NOT_FOUND, 1)
        assert "asked for more than the capacity of 4" in nothing.err


def test_an_interrupt_ends_it_quietly(cli: Cli) -> None:
    started = cli.start(
        "simulate", "--capacity", "9", "--hold", "1m", "--arrivals", "100000", "--policy", "none"
    )
    eventually(lambda: cpu_seconds(started.pid) > 0.5)
    os.kill(started.pid, signal.SIGINT)
    finished = started.finish()
    assert finished.code in (-signal.SIGINT, 128 + signal.SIGINT)
    assert (finished.out, finished.err) == ("", "")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")
