"""Leases in Kubernetes, while those who want them are killed, and what they ask is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.kubernetes_campaign import Size, campaign
from tests.crash.kubernetes_judge import all_violations, count
from tests.crash.kubernetes_participants import Habits
from tests.kit.history import Event
from tests.kit.kubernetes.control_plane import Asked
from tests.kit.kubernetes.namespaces import Namespace

SHORT = Size(
    seconds=6.0,
    participants=5,
    runs=1,
    resources=3,
    servers=1,
    lost=0.03,
    every=(0.2, 0.8),
    habits=Habits(
        ttl=2.0, holds=(0.02, 0.3), long_holds=(2.4, 3.0), rests=(0.0, 0.2), waits=(1.0, 4.0)
    ),
    slack=4.0,
    grants=6,
    faults=4,
)


def test_whatever_goes_wrong_the_guarantees_hold(namespace: Namespace, tmp_path: Path) -> None:
    report = campaign(namespace, tmp_path, SHORT, seed=1)
    print(report)
    assert report.violations == []
    assert report.counts.grants >= SHORT.grants


class TestJudging:
    """What a campaign would see; overlaps, fences and order are tested with the kit's history."""

    SECOND = 10**9

    def event(self, at: float, kind: str, handle: str, name: str = "a") -> Event:
        number = int(at * 10) + 1
        return Event(int(at * self.SECOND), kind, handle, name, number, number, number, 1)

    def judge(self, *events: Event, asked: Asked | None = None, path: str = "/") -> list[str]:
        return all_violations(
            events, [asked] if asked else [], [path], names=["a", "b"], most=1, longest_gap=2.0
        )

    @pytest.mark.parametrize(("freed_at", "found"), [(1.0, 1), (3.0, 0)])
    def test_a_wait_for_what_is_free(self, freed_at: float, found: int) -> None:
        assert found == len(
            self.judge(
                self.event(0.0, "granted", "h/p1.1", "a"),
                self.event(0.1, "granted", "h/p2.1", "b"),
                self.event(0.2, "asked", "h/p3.1", "-"),
                self.event(freed_at, "releasing", "h/p1.1", "a")._replace(fence=1, ticket=1),
                self.event(4.0, "granted", "h/p3.1", "a"),
            )
        )

    @pytest.mark.parametrize("who", ["h", "h/p3"])
    def test_who_is_disturbed_doesnt_count(self, who: str) -> None:
        asked = self.event(0.0, "asked", "h/p3.1", "-")
        granted = self.event(9.0, "granted", "h/p3.1")
        assert len(self.judge(asked, granted)) == 1
        assert self.judge(asked, granted, self.event(0.5, "disturbed", who)) == []

    def test_what_a_killed_holder_had_is_free_when_its_time_is_over(self) -> None:
        events = [
            self.event(0.0, "granted", "h/p1.1", "a")._replace(until=2 * self.SECOND),
            self.event(0.0, "granted", "h/p2.1", "b")._replace(until=9 * self.SECOND),
            self.event(0.1, "asked", "h/p3.1", "-"),
            self.event(0.5, "died", "h/p1", "killed"),
            self.event(3.5, "granted", "h/p3.1", "a"),
        ]
        assert self.judge(*events) == []
        found = count(events, names=["a", "b"], most=1)
        assert (found.longest_gap, found.longest_since_death) == (1.5, 3.0)

    def test_a_wait_goes_on_when_who_was_next_is_killed(self) -> None:
        found = self.judge(
            self.event(0.0, "asked", "h/p1.1", "-"),
            self.event(0.1, "asked", "h/p2.1", "-"),
            self.event(1.5, "died", "h/p1", "killed"),
            self.event(3.0, "granted", "h/p2.1"),
        )
        assert found == ["3.0s without a grant, until 3000000000"]

    @pytest.mark.parametrize(
        ("hindered", "found"), [(("disturbed", "h"), 0), (("hindered", "h"), 0), (("died", "p"), 1)]
    )
    def test_a_command_whose_run_was_killed(self, hindered: tuple[str, str], found: int) -> None:
        """It is judged, if its keeper could renew what it has."""
        use = self.event(0.0, "granted", "h/run-1.1")
        events = [
            use._replace(until=1),
            self.event(0.1, "orphaned", "h/run-1.1"),
            self.event(0.2, *hindered),
            use._replace(at=3 * self.SECOND, kind="renewed", until=3 * self.SECOND),
            self.event(2.0, "granted", "h/p1.1"),
        ]
        assert len(self.judge(*events)) == found

    def test_what_a_put_has_made_anew(self) -> None:
        assert len(self.judge(asked=Asked("update", "leases", "x", 201, "me"))) == 1

    def test_reads_that_may_be_long_past(self) -> None:
        assert len(self.judge(path="/leases?limit=500&resourceVersion=0")) == 1
        assert self.judge(path="/leases?watch=1&resourceVersion=0") == []
