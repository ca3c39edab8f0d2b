"""Many that bring the same names into pools: each is in one or in none, whoever looks, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.pools import admin
from leasectl.state.event import Event, Kept
from tests.crash.member_crowd import DEFAULT, Host, make_pools, open_service, run_crowd
from tests.crash.member_judge import Seen, Story, WrittenStory, read_seen, summary, violations
from tests.kit.hosts import Hosts
from tests.kit.invariants import broken_invariants
from tests.kit.killing import FULL_SIZE
from tests.kit.kubernetes.history import LeaseHistory
from tests.kit.kubernetes.hosts import namespace_settings
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.support import Cli
from tests.kit.waits import eventually

NUMBER, SECONDS, KILL_EVERY = (32, 60.0, 0.4) if FULL_SIZE else (6, 1.0, 0.2)


def judge(host: Host, written: Path, kills: int) -> None:
    """Hold what was seen against what happened."""
    service = open_service(host, "judge")
    story, seen = Story(service.events.read()), read_seen(written)
    service.state.close()
    found = violations(seen, story, default=DEFAULT)
    print(f"{kills} kills, {story.moves} moves, {dict(sorted(summary(seen).items()))}")
    assert found == []
    assert kills > 0
    done = {verb for verb, outcome in summary(seen) if outcome == "done"}
    assert done >= ({"read", "add", "join", "hold", "move", "leave"} if FULL_SIZE else {"read"})


def judge_written(history: LeaseHistory, written: Path, kills: int) -> None:
    """Hold what was seen against each write, as a watch has told it."""
    story, seen = WrittenStory(history.upto_now()), read_seen(written)
    found = violations(seen, story, default=DEFAULT, may_be_unsure=True)
    print(f"{kills} kills, {story.moves} moves, {dict(sorted(summary(seen).items()))}")
    assert found == []
    assert kills > 0
    done = {verb for verb, outcome in summary(seen) if outcome == "done"}
    assert done >= ({"read", "add", "join", "hold", "move", "leave"} if FULL_SIZE else {"read"})


def settle(host: Host) -> None:
    """See that of the killed nothing is held in the end."""

    def is_free() -> bool:
        service = open_service(host, "looks")
        pools = admin.show(service)
        service.state.close()
        return not any(pool.held for pool in pools)

    eventually(is_free)


def test_on_the_embedded_pool(cli: Cli, tmp_path: Path) -> None:
    host, written = Host(cli.state_dir, "local:"), tmp_path / "written"
    make_pools(host)
    kills = run_crowd([host], written, number=NUMBER, seconds=SECONDS, kill_every=KILL_EVERY)
    settle(host)
    assert broken_invariants(cli.state_dir) == []
    judge(host, written, kills)


def test_on_etcd_from_three_state_directories(hosts: Hosts, tmp_path: Path) -> None:
    hosts.keep_events(Kept(32 * 3600.0, 10_000_000))
    crowd = [Host(hosts.new().state_dir, hosts.url) for _ in range(3)]
    written = tmp_path / "written"
    make_pools(crowd[0])
    kills = run_crowd(crowd, written, number=NUMBER, seconds=SECONDS, kill_every=KILL_EVERY)
    settle(crowd[0])
    judge(crowd[0], written, kills)


def test_on_kubernetes_from_three_state_directories(namespace: Namespace, tmp_path: Path) -> None:
    history = LeaseHistory(namespace)
    settings = namespace_settings(namespace, tmp_path)
    clis = [Cli(tmp_path / f"state-{number}", tmp_path) for number in range(3)]
    crowd = [Host(cli.state_dir, "kubernetes://", settings) for cli in clis]
    written = tmp_path / "written"
    make_pools(crowd[0])
    try:
        kills = run_crowd(crowd, written, number=NUMBER, seconds=SECONDS, kill_every=KILL_EVERY)
        settle(crowd[0])
    finally:
        for cli in clis:
            cli.close()
    judge_written(history, written, kills)


class TestTheJudge:
    """What it takes for wrong, and what not."""

    EVENTS = (
        (1, "pool made", "A", "1 resource, no pace"),
        (2, "pool changed", "A", "1 resource moved to B, removed"),
        (3, "pool changed", "B", "1 resource moved here from A, added"),
        (4, "pool changed", "B", "1 resource removed"),
    )

    def story(self, *events: tuple[int, str, str, str]) -> Story:
        return Story(
            Event(number, 0.0, kind, pool_type, ("n",), reason=reason)  # type: ignore[arg-type]
            for number, kind, pool_type, reason in events
        )

    def test_finds_nothing_wrong_with_a_move(self) -> None:
        story = self.story(*self.EVENTS)
        assert (story.violations, story.moves) == ([], 1)
        assert story.possible("n", 0, 0) == {None}
        assert story.possible("n", 1, 2) == {"A"}
        assert story.possible("n", 2, 3) == {"A", "B"}
        assert story.possible("n", 3, 4) == {"B", None}

    def test_finds_a_name_in_two_pools(self) -> None:
        story = self.story(self.EVENTS[0], (2, "pool changed", "B", "1 resource added"))
        assert len(story.violations) == 1

    def test_finds_a_name_that_is_in_none_during_a_move(self) -> None:
        story = self.story(
            self.EVENTS[0],
            (2, "pool changed", "A", "1 resource removed"),
            (3, "pool changed", "B", "1 resource moved here from A, added"),
        )
        assert len(story.violations) == 1

    @pytest.mark.parametrize(
        "seen",
        [
            Seen("p", "read", "n", "", 1, 2, "done", ("B",)),
            Seen("p", "read", "n", "", 1, 3, "done", ()),
            Seen("p", "read", "n", "", 2, 3, "done", ("A", "B")),
            Seen("p", "add", "n", "C", 1, 1, "done"),
            Seen("p", "add", "n", "C", 1, 1, 'resource "n" is in pool "E", and can be in one'),
            Seen("p", "add", "n", "C", 1, 1, 'resource "n" is expected in pool "B"'),
            Seen(
                "p",
                "expect",
                "n",
                "B",
                1,
                1,
                'resource "n" is to move to pool "B" when it is released; have it',
            ),
            Seen("p", "add", "n", "C", 1, 1, "something went wrong"),
            Seen("p", "add", "n", "C", 3, 3, 'resource "n" is in pool "B", the default'),
        ],
    )
    def test_finds_what_nobody_can_have_seen(self, seen: Seen) -> None:
        story = self.story(*self.EVENTS)
        assert violations([seen], story, default="B")

    def test_believes_what_can_be(self) -> None:
        story = self.story(*self.EVENTS)
        seen = [
            Seen("p", "read", "n", "", 1, 3, "done", ("B",)),
            Seen("p", "read", "n", "", 0, 0, "done"),
            Seen("p", "add", "n", "C", 1, 1, 'resource "n" is in pool "A", and can be in one'),
            Seen("q", "expect", "n", "B", 0),
            Seen(
                "q",
                "expect",
                "n",
                "A",
                1,
                1,
                'resource "n" is to move to pool "B" when it is released; have it',
            ),
            Seen("p", "add", "n", "C", 1, 1, 'resource "n" is expected in pool "B"'),
        ]
        assert violations(seen, story, default="D") == []
