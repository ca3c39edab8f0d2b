"""Who is asked for a keep-alive, and what shows that a member of etcd lags."""

from __future__ import annotations

import pytest

from leasectl.engines.etcd.gateway.answers import KeepAliveAnswer, parse_keep_alive_answer
from leasectl.engines.etcd.gateway.requests import Json
from leasectl.engines.etcd.waiting.lag import LagDetector
from leasectl.http.no_answer import NoAnswer

TTL = 60.0
SLACK = 1.0


class KeptAlive:
    """One waiter's keep-alives, as `KeepAlives` sends them.

    Args:
        size: How many members there are; the first is listened to.

    Attributes:
        revisions: What the members say; one that isn't there doesn't answer.
        member: Who is listened to.
        asked: Who was asked, for each keep-alive.
    """

    def __init__(self, size: int) -> None:
        self._detector = LagDetector(size)
        self._size = size
        self._now = 1000.0
        self.revisions = dict.fromkeys(range(size), 5)
        self.member = 0
        self.asked: list[tuple[int, ...]] = []

    def keep_alive(self, times: int = 1, *, pause: float = TTL / 3) -> None:
        """Send some, with a pause after each."""
        for _ in range(times):
            member = self.member
            other = self._detector.choose_other(member, now=self._now, slack_seconds=SLACK)
            if other is not None and self._ask(other):
                self.asked.append((other,))
            else:
                if other is not None:
                    self._detector.rest(other, self._now + 2 * TTL)
                self.asked.append((member,) if other is None else (other, member))
                if not self._ask(member):
                    self._detector.begin_anew(self._now + TTL / 3)
                    self.member = (member + 1) % self._size
            self._now += pause

    def _ask(self, member: int) -> bool:
        revision, now = self.revisions.get(member), self._now
        if revision is None or self._detector.lags(
            member, revision, asked_at=now, slack_seconds=SLACK
        ):
            return False
        self._detector.note(member, revision, asked_at=now, now=now)
        return True


def test_who_has_one_member_only_asks_that() -> None:
    kept = KeptAlive(1)
    kept.keep_alive(4)
    assert kept.asked == [(0,)] * 4


def test_of_several_each_other_one_is_asked_in_turn_every_second_time() -> None:
    kept = KeptAlive(3)
    kept.keep_alive(8)
    assert kept.asked == [(0,), (1,), (0,), (2,), (0,), (1,), (0,), (2,)]


def test_a_member_that_knows_less_than_another_did_is_left_after_one_ttl_at_most() -> None:
    for before in range(4):
        kept = KeptAlive(3)
        kept.keep_alive(before)
        kept.revisions = {0: 5, 1: 6, 2: 6}
        kept.keep_alive(4)
        assert kept.member == 1, before


def test_a_member_that_knows_more_than_another_did_is_kept() -> None:
    kept = KeptAlive(2)
    for revision in range(5, 20):
        kept.revisions = {0: revision, 1: revision}
        kept.keep_alive()
    assert kept.member == 0


def test_one_that_is_a_moment_later_does_not_lag() -> None:
    kept = KeptAlive(2)
    kept.keep_alive()
    kept.revisions = {0: 5, 1: 6}
    kept.keep_alive(pause=0.9 * SLACK)
    kept.keep_alive(pause=0)
    assert (kept.asked, kept.member) == ([(0,), (1,), (0,)], 0)


def test_who_did_not_answer_is_not_asked_next_time_if_there_is_a_third() -> None:
    kept = KeptAlive(3)
    del kept.revisions[1]
    kept.keep_alive(8)
    assert kept.asked == [(0,), (1, 0), (2,), (0,), (2,), (0,), (2,), (0,)]
    kept.keep_alive()
    assert kept.asked[-1] == (1, 0)


def test_the_only_other_one_is_rarely_asked_when_it_does_not_answer() -> None:
    kept = KeptAlive(2)
    del kept.revisions[1]
    kept.keep_alive(12)
    assert kept.asked.count((1, 0)) == 2
    assert kept.asked.count((0,)) == 10


def test_what_another_says_that_lags_itself_does_not_count() -> None:
    kept = KeptAlive(2)
    kept.revisions = {0: 9, 1: 5}
    kept.keep_alive(3)
    assert (kept.asked, kept.member) == ([(0,), (1, 0), (0,)], 0)


def test_a_cluster_that_was_restored_is_believed_after_one_move() -> None:
    kept = KeptAlive(3)
    kept.keep_alive(4)
    kept.revisions = dict.fromkeys(range(3), 2)
    moves = 0
    for _ in range(10):
        before = kept.member
        kept.keep_alive()
        moves += kept.member != before
    assert moves <= 1


def test_members_that_change_behind_their_addresses_are_left_once_in_an_interval_at_most() -> None:
    kept = KeptAlive(2)
    moves = []
    for number in range(3000):  # many waiters: a keep-alive each 0.1 s
        before = kept.member
        kept.revisions = dict.fromkeys(range(2), 9 if number % 13 == 0 else 5)
        kept.keep_alive(pause=0.1)
        if kept.member != before:
            moves.append(number * 0.1)
    assert len(moves) > 2
    assert min(after - before for before, after in zip(moves, moves[1:])) >= TTL / 3


def test_the_answer_to_a_keep_alive_has_the_revision_of_the_member_that_gave_it() -> None:
    header = {"revision": "17", "raft_term": "2"}
    assert parse_keep_alive_answer(
        {"result": {"header": header, "ID": "1", "TTL": "60"}}
    ) == KeepAliveAnswer(True, 17)
    assert parse_keep_alive_answer({"result": {"header": header, "ID": "1"}}) == KeepAliveAnswer(
        False, 17
    )


@pytest.mark.parametrize(
    "answer", [{}, {"result": 1}, {"result": {"header": {}, "TTL": "x"}}, {"result": {"TTL": "1"}}]
)
def test_what_is_no_answer_to_a_keep_alive_does_not_count(answer: Json) -> None:
    with pytest.raises(NoAnswer):
        parse_keep_alive_answer(answer)
