"""What is over is what one has seen unrenewed for long enough, by a clock of one's own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from leasectl.engines.cluster.observed import Observed
from leasectl.model import Claimant, Request
from tests.kit.kubernetes.made_up_api import MadeUpApi
from tests.kit.kubernetes.made_up_process import Process
from tests.kit.support import ManualClock

DAY = 24 * 3600.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "observed"


def test_it_counts_from_when_it_was_first_seen_so(manual_clock: ManualClock) -> None:
    observed = Observed(manual_clock.clock)
    start = observed.since("uid", "renewed at 1", 5)
    manual_clock.advance(10)
    assert observed.since("uid", "renewed at 1", 7) == start  # others have written something
    assert observed.since("uid", "renewed at 2", 8) == start + 10


def test_an_old_view_says_nothing_new(manual_clock: ManualClock) -> None:
    observed = Observed(manual_clock.clock)
    manual_clock.advance(10)
    since = observed.since("uid", "renewed at 2", 8)
    manual_clock.advance(10)
    assert observed.since("uid", "renewed at 1", 5) == since
    assert observed.since("uid", "renewed at 2", 8) == since


def test_others_of_the_state_directory_know_it_too(manual_clock: ManualClock, path: Path) -> None:
    first = Observed(manual_clock.clock, str(path))
    since = first.since("uid", "mark", 5)
    first.save()
    manual_clock.advance(10)
    assert Observed(manual_clock.clock, str(path)).since("uid", "mark", 5) == since
    assert Observed(manual_clock.clock).since("uid", "mark", 5) == since + 10


def test_of_two_that_save_the_longer_and_the_newer_knowledge_stays(
    manual_clock: ManualClock, path: Path
) -> None:
    first, second = (Observed(manual_clock.clock, str(path)) for _ in range(2))
    early = first.since("same", "mark", 5)
    first.since("renewed", "old", 5)
    second.since("other", "mark", 5)  # and so it has read the file
    manual_clock.advance(10)
    assert second.since("same", "mark", 5) == early + 10
    late = second.since("renewed", "new", 6)
    second.save()
    first.since("more", "mark", 9)
    first.save()
    third = Observed(manual_clock.clock, str(path))
    assert third.since("same", "mark", 5) == early
    assert third.since("renewed", "new", 6) == late


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"boot": "x", "seen": {}}',
        '{"seen": []}',
        '{"boot": 1, "seen": {"uid": ["mark"]}}',
    ],
)
def test_what_cant_be_read_is_as_if_it_wasnt_there(
    manual_clock: ManualClock, path: Path, content: str
) -> None:
    path.write_text(content)
    observed = Observed(manual_clock.clock, str(path))
    assert observed.since("uid", "mark", 5) == manual_clock.clock.elapsed()
    observed.save()
    assert json.loads(path.read_text())["seen"]["uid"][0] == "mark"


def test_what_was_seen_before_the_machine_was_started_counts_for_nothing(
    manual_clock: ManualClock, path: Path
) -> None:
    observed = Observed(manual_clock.clock, str(path))
    observed.since("uid", "mark", 5)
    observed.save()
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "boot": "another"}))
    manual_clock.advance(10)
    again = Observed(manual_clock.clock, str(path))
    assert again.since("uid", "mark", 5) == manual_clock.clock.elapsed()


def test_where_nothing_can_be_written_nothing_fails(manual_clock: ManualClock) -> None:
    observed = Observed(manual_clock.clock, "/nonexistent/folder/observed")
    observed.since("uid", "mark", 5)
    observed.save()


@pytest.mark.parametrize("ending", ["", ".lock", ".new"])
def test_a_fifo_in_place_of_a_file_holds_nobody_up(
    manual_clock: ManualClock, path: Path, ending: str
) -> None:
    os.mkfifo(f"{path}{ending}")
    observed = Observed(manual_clock.clock, str(path))
    since = observed.since("uid", "mark", 5)
    manual_clock.advance(10)
    observed.save()
    assert observed.since("uid", "mark", 5) == since


class TestWhatIsKept:
    """In the file, by processes that look once and end."""

    @pytest.fixture
    def api(self) -> MadeUpApi:
        return MadeUpApi()

    def test_a_claim_with_a_ttl_of_days_is_over_after_that(
        self, api: MadeUpApi, manual_clock: ManualClock, path: Path
    ) -> None:
        dead = Process(api, manual_clock.clock, state_id="elsewhere")
        dead.pools.create_pool("T", ["a", "b"])
        dead.pools.create_pool("U", ["c"])
        dead.acquire("k/1", Request("T", name="a", ttl_seconds=7 * DAY))
        for day in range(7):
            looks = Process(api, manual_clock.clock, path)
            assert "a" in looks.held(), day
            looks.acquire(f"k/{day}", Request("U", ttl_seconds=60.0))
            looks.acquire("k/2", Request("U"))  # in vain, and so it writes down what it has seen
            looks.engine.free(f"k/{day}")
            manual_clock.advance(DAY)
        assert Process(api, manual_clock.clock, path).held() == {}

    def test_what_has_gone_is_forgotten(
        self, api: MadeUpApi, manual_clock: ManualClock, path: Path
    ) -> None:
        holder = Process(api, manual_clock.clock, state_id="elsewhere")
        holder.pools.create_pool("T", ["a"])
        holder.acquire("k/1", Request("T", ttl_seconds=DAY))
        for number in range(5):
            waiter = holder.engine.waiter(
                Claimant(f"w/{number}", "w", Request("T", ttl_seconds=600.0)), until=None
            )
            waiter.enqueue()
            Process(api, manual_clock.clock, path).acquire("k/2", Request("T"))
            assert len(kept(path)) == 3  # the claim, and the tickets of both who wait
            waiter.dequeue()
            waiter.close()
            manual_clock.advance(100)


def kept(path: Path) -> dict[str, object]:
    seen = json.loads(path.read_text())["seen"]
    assert isinstance(seen, dict)
    return seen
