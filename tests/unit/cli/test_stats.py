"""``leasectl stats``: numbers and pictures, of events that commands and tests made."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

import pytest

from leasectl.state.event import Event
from leasectl.text.wording import cells
from tests.kit.support import Cli

# The code is the same on every Python.
pytestmark = pytest.mark.once

HOUR = 3600.0


def write(cli: Cli, events: Sequence[Event], *, backend: str = "") -> None:
    """Write events as if they had happened, into a state directory that is there."""
    columns = (
        "time, kind, type, names, fences, handle, acquisition, holder_identity, count, priority, "
        "ticket, grant_number, wait_seconds, hold_seconds, ended_by, reason, build_url, backend"
    )
    values = ", ".join("?" * 18)
    with sqlite3.connect(cli.state_dir / "state.db") as database:
        database.executemany(
            f"INSERT INTO event ({columns}) VALUES ({values})",
            [(*each[1:4], ",".join(each.names), "", *each[6:], backend) for each in events],
        )


def day(pool_type: str = "T", *, jobs: int = 20, begin: float) -> list[Event]:
    """A pool of two that was made then, and jobs that held for an hour each, one after another."""
    names = (f"{pool_type}--00", f"{pool_type}--01")
    found = [Event(0, begin, "pool made", pool_type, names, count=2)]
    for n in range(jobs):
        name, handle, at = names[n % 2], f"{pool_type}-{n:06d}", begin + HOUR * (n // 2)
        of_handle: dict[str, Any] = {"names": (name,), "handle": handle, "acquisition": 1}
        found += [
            Event(0, begin, "queued", pool_type, handle=handle, acquisition=1),
            Event(0, at, "granted", pool_type, wait_seconds=at - begin, **of_handle),
            Event(0, at + HOUR, "released", pool_type, hold_seconds=HOUR, by="guard", **of_handle),
        ]
    return sorted(found, key=lambda each: each.time)


@pytest.fixture
def past(cli: Cli) -> Cli:
    """A pool of two that was busy for ten hours of the last twelve, and is there still."""
    cli.pool("T")
    with sqlite3.connect(cli.state_dir / "state.db") as database:
        database.execute("DELETE FROM event")
    write(cli, day(begin=time.time() - 12 * HOUR))
    return cli


class TestNumbers:
    def test_json_has_all_of_them_in_seconds(self, past: Cli) -> None:
        found = json.loads(past.ok("stats", "--json"))
        (pool,) = found["pools"]
        assert found["backend"] == "local:"
        assert list(pool) == [
            *("type", "since", "until", "grants", "wait_seconds", "hold_seconds", "holds"),
            *("peak_starts_within_a_minute", "utilisation", "gave_up", "lost"),
            *("taken_back_for_the_dead", "capacity", "held", "waiting", "resources_per_grant"),
            *("advised_pace_seconds", "series"),
        ]
        assert (pool["type"], pool["grants"], pool["capacity"]) == ("T", 20, 2)
        assert pool["wait_seconds"] == {"p50": 4 * HOUR, "p95": 9 * HOUR, "max": 9 * HOUR}
        assert pool["hold_seconds"] == {"p50": HOUR, "p95": HOUR, "max": HOUR}
        assert pool["peak_starts_within_a_minute"] == 2
        assert pool["utilisation"] == pytest.approx(10 / 12, abs=0.01)
        assert (pool["gave_up"], pool["lost"], pool["taken_back_for_the_dead"]) == (0, 0, 20)
        assert (pool["held"], pool["waiting"]) == (0, 0)
        assert pool["advised_pace_seconds"] == HOUR / 2 / 1.2
        series = pool["series"]
        lengths = {key: len(series[key]) for key in ("held", "waiting", "starts", "capacity")}
        assert set(lengths.values()) == {60}
        assert series["step_seconds"] == pytest.approx(12 * 60, rel=0.01)
        assert max(series["held"]) == 2
        assert max(series["starts"]) == 2

    def test_people_get_tables_and_a_picture_that_fit_80_columns(self, past: Cli) -> None:
        shown = past.ok("stats").splitlines()
        assert re.fullmatch(r"T, [\d-]+ [\d:]+ to [\d-]+ [\d:]+ UTC", shown[0])
        assert (
            " ".join(shown[2].split()) == "POOL GRANTS PEAK/MIN UTILISATION GAVE UP LOST TAKEN BACK"
        )
        assert shown[3].split() == ["T", "20", "2", "83%", "0", "0", "20"]
        assert shown[6].split() == ["T", "4h", "9h", "9h", "1h", "1h", "1h", "25m", "(of", "20)"]
        assert "     held, of 2, peak 2" in shown
        assert "█" in "".join(shown)
        assert all(cells(line) <= 80 for line in shown)

    def test_a_window_leaves_out_what_was_before_and_after(self, past: Cli) -> None:
        def grants(*args: str) -> int:
            (pool,) = json.loads(past.ok("stats", "--json", *args))["pools"]
            number: int = pool["grants"]
            return number

        assert grants("--since", "11h30m") == 18
        assert grants("--until", "11h30m") == 2
        assert grants("--since", "1h") == 0

    def test_the_handles_on_a_server_without_pools_are_told_of(self, cli: Cli) -> None:
        cli.ok("status")
        url = "http://127.0.0.1:9"
        events = [each for each in day("P", begin=time.time() - 12 * HOUR) if each.names][1:]
        write(cli, events, backend=url)
        (pool,) = json.loads(cli.ok("stats", "--json", "--backend", url))["pools"]
        assert (pool["type"], pool["grants"]) == ("P", 20)
        assert (pool["utilisation"], pool["capacity"], pool["series"]["capacity"]) == (None,) * 3
        assert "     held, peak 2\n" in cli.ok("stats", "--backend", url)


class TestSeveralPools:
    def test_pictures_are_of_the_busiest(self, past: Cli) -> None:
        for n in range(6):
            write(past, day(f"P{n}", jobs=n + 1, begin=time.time() - 11 * HOUR))
        shown = past.ok("stats")
        assert re.findall(r"^(\w+)$", shown, re.MULTILINE) == ["T", "P5", "P4", "P3", "P2"]
        assert "charts of the 5 pools with the most grants" in shown

    def test_names_from_elsewhere_reach_no_terminal_as_they_are(self, past: Cli) -> None:
        write(past, day("\x1b[31m<script>\n" + "漢" * 200, begin=time.time() - 11 * HOUR))
        shown = past.ok("stats", COLUMNS="80")
        assert "\x1b" not in shown
        assert all(cells(line) <= 80 for line in shown.splitlines())


class TestNothing:
    def test_without_events_it_says_what_makes_some(self, cli: Cli) -> None:
        for backend, said in (
            ("local:", "no events yet; they are recorded when a lease is acquired "),
            ("http://127.0.0.1:9", "no events yet; they are recorded when a lease is acquired "),
            ("none:", "leasectl: a dry run leases nothing, so there are no events\n"),
        ):
            finished = cli("stats", "--backend", backend)
            assert (finished.code, finished.out) == (0, "")
            assert said in finished.err
        assert json.loads(cli.ok("stats", "--json")) == {"backend": "local:", "pools": []}

    def test_a_pool_without_events_is_no_unknown_one(self, cli: Cli) -> None:
        cli.pool("T")
        with sqlite3.connect(cli.state_dir / "state.db") as database:
            database.execute("DELETE FROM event")
        finished = cli("stats", "T")
        assert finished.code == 0
        assert "no events of T yet" in finished.err
        assert cli("stats", "nope").code == 66

    def test_a_pool_that_nobody_used_has_numbers_and_no_picture(self, cli: Cli) -> None:
        cli.pool("T")
        shown = cli.ok("stats")
        assert "held" not in shown
        assert len(shown.splitlines()) == 7


class TestBadInput:
    @pytest.mark.parametrize(
        "args",
        [
            ("--since", "x"),
            ("--since", "1h", "--until", "2h"),
            ("T", "-t", "T"),
            ("--plot", "T.pdf"),
        ],
    )
    def test_it_is_one_line_and_64(self, cli: Cli, args: tuple[str, ...]) -> None:
        finished = cli("stats", *args)
        assert (finished.code, finished.err.count("\n"), finished.out) == (64, 1, "")


@pytest.mark.once  # where the extra is installed
class TestPlot:
    def test_it_is_written_whatever_the_environment(self, past: Cli) -> None:
        pytest.importorskip("matplotlib", reason="the extra is not installed: .[plot]")
        path = past.cwd / "T.svg"
        past.ok("stats", "--plot", str(path), "--json", MPLBACKEND="nonsense", HOME="/dev/null/x")
        assert "held, of 2" in path.read_text(encoding="utf-8")
