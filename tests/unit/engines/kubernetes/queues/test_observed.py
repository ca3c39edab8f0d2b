"""What is over is what one has seen unrenewed for long enough, by a clock of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leasectl.engines.kubernetes.queues.observed import Observed
from tests.kit.support import ManualClock


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
