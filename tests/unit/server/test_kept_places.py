"""Which requests wait for others to come back after a restart of the server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from leasectl.server.kept_places import RETURN_SECONDS, KeptPlaces
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.process import this_process
from tests.kit.support import Cli, ManualClock


def _left_by_dead_server(cli: Cli, *lines: str) -> Path:
    """Write the file of a server that was killed."""
    dead = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = this_process()._replace(pid=dead.pid, start_time=1)
    dead.communicate(b"\n")
    path = cli.state_dir / f"serve.places.{dead.pid}"
    path.write_text("\n".join((process.encode(), *lines)) + "\n")
    return path


@pytest.fixture
def state(cli: Cli) -> State:
    cli.pool("T")
    return State.open(str(cli.state_dir))


async def _come(places: KeptPlaces, came: list[str], handle_id: str, pool_type: str) -> None:
    await places.wait_for_turn(handle_id, pool_type)
    came.append(handle_id)


async def _come_in_order(places: KeptPlaces, requests: list[tuple[str, str]]) -> list[str]:
    """Let requests come one after the other; return the order in which they go on."""
    came: list[str] = []
    tasks = []
    for handle_id, pool_type in requests:
        tasks.append(asyncio.ensure_future(_come(places, came, handle_id, pool_type)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return came


def test_requests_go_on_in_their_earlier_order_and_new_ones_after_them(
    cli: Cli, state: State
) -> None:
    left = _left_by_dead_server(cli, "+T a", "+T gone", "+T b", "-gone", "+T c")
    places = KeptPlaces(state, clock=Clock())
    assert not left.exists()
    requests = [("new", "T"), ("c", "T"), ("b", "T"), ("other", "S"), ("a", "T")]
    came = asyncio.run(_come_in_order(places, requests))
    assert came[0] == "other"
    assert sorted(came[1:4]) == came[1:4] == ["a", "b", "c"]
    assert came[4] == "new"


def test_requests_that_come_at_once_are_not_held_until_the_time_is_over(
    cli: Cli, state: State
) -> None:
    _left_by_dead_server(cli, "+T a", "+T b", "+T c")
    places = KeptPlaces(state, clock=Clock())

    async def come() -> list[str]:
        came: list[str] = []
        all_of_them = asyncio.gather(*(_come(places, came, each, "T") for each in "bac"))
        await asyncio.wait_for(all_of_them, RETURN_SECONDS / 2)
        return came

    assert asyncio.run(come()) == ["a", "b", "c"]


def test_request_that_does_not_come_back_is_waited_for_only_for_a_while(
    cli: Cli, state: State
) -> None:
    _left_by_dead_server(cli, "+T a", "+T b")
    time = ManualClock()
    places = KeptPlaces(state, clock=time.clock)
    time.advance(RETURN_SECONDS)
    assert asyncio.run(_come_in_order(places, [("b", "T")])) == ["b"]


def test_those_that_do_come_back_keep_their_order_without_one_that_does_not(
    cli: Cli, state: State
) -> None:
    _left_by_dead_server(cli, "+T gone", "+T a", "+T b", "+T c")
    time = ManualClock()
    places = KeptPlaces(state, clock=time.clock)

    async def come() -> list[str]:
        came: list[str] = []
        tasks = [asyncio.ensure_future(_come(places, came, each, "T")) for each in "cab"]
        await asyncio.sleep(0)
        time.advance(RETURN_SECONDS)
        await asyncio.gather(*tasks, _come(places, came, "new", "T"))
        return came

    assert asyncio.run(come()) == ["a", "b", "c", "new"]


def test_notes_of_a_server_that_lives_are_left_alone(cli: Cli, state: State) -> None:
    first = KeptPlaces(state, clock=Clock())
    first.note("a", "T")
    second = KeptPlaces(state, clock=Clock())
    assert asyncio.run(_come_in_order(second, [("b", "T")])) == ["b"]
    (path,) = cli.state_dir.glob("serve.places.*")
    assert path.stat().st_mode & 0o777 == 0o600
    first.forget("a")
    first.close()
    assert not path.exists()


def test_notes_of_a_server_that_is_about_to_end_are_taken(cli: Cli, state: State) -> None:
    first = KeptPlaces(state, clock=Clock())
    first.note("a", "T")
    first.close()
    first.note("late", "T")
    second = KeptPlaces(state, clock=Clock())
    assert asyncio.run(_come_in_order(second, [("b", "T"), ("a", "T")])) == ["a", "b"]
    assert not list(cli.state_dir.glob("serve.places.*"))


def test_file_stays_small(cli: Cli, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasectl.server.kept_places._MOST_OLD_LINES", 10)
    places = KeptPlaces(state, clock=Clock())
    places.note("stays", "T")
    for number in range(100):
        places.note(f"a{number}", "T")
        places.forget(f"a{number}")
    (path,) = cli.state_dir.glob("serve.places.*")
    lines = path.read_text().splitlines()
    assert len(lines) < 20
    assert "+T stays" in lines
