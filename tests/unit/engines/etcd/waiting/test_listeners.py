"""Who of many that listen on one stream of watches is told of what."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.waiting.listeners import Listeners
from leasectl.engines.etcd.waiting.targets import WatchTarget, at_the_head, behind, for_the_pace


class Sleeper:
    """Notes what it is woken with."""

    def __init__(self) -> None:
        self.woken: list[tuple[KeyValue, ...]] = []
        self.noted: list[KeyValue] = []

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        self.woken.append(tuple(news))

    def note(self, news: KeyValue) -> None:
        self.noted.append(news)


KEYS = Keys("/p", "here")
TICKETS, FREES, ALIVES, POOL, SETTINGS = at_the_head(KEYS, "T", 1, 0).shared


def target(number: int, revision: int) -> WatchTarget:
    """What the so-manieth ticket of a queue waits for after a look at a revision."""
    if number == 0:
        return at_the_head(KEYS, "T", 0, revision)
    return behind(KEYS, "T", number, KEYS.ticket("T", number - 1), revision)


def event(key: str, revision: int) -> KeyValue:
    return KeyValue(key, "", 0, revision)


class TestListeners:
    def test_who_is_alone_has_watches_for_its_own_target(self) -> None:
        listeners = Listeners()
        assert listeners.put(Sleeper(), target(1, revision=5))
        assert listeners.revisions == dict.fromkeys(target(1, 5).watched, 5)

    def test_one_more_waiter_of_the_same_pool_changes_nothing_about_the_stream(self) -> None:
        listeners = Listeners()
        assert listeners.put(Sleeper(), target(0, revision=5))
        assert listeners.put(Sleeper(), target(1, revision=6))
        assert set(listeners.revisions) == {TICKETS, FREES, ALIVES, POOL, SETTINGS}
        assert not any(listeners.put(Sleeper(), target(n, revision=6 + n)) for n in range(2, 100))

    def test_of_what_is_quiet_who_listens_is_told_and_not_woken(self) -> None:
        listeners, sleeper, late = Listeners(), Sleeper(), Sleeper()
        paced = for_the_pace(KEYS, "T", 1, 5)
        grants = next(each for each in paced.watched if each.is_quiet)
        listeners.put(sleeper, paced)
        told = event(KEYS.grants("T"), 9)
        listeners.tell(grants, [event(KEYS.grants("T"), 5), told])
        assert (sleeper.noted, sleeper.woken) == ([told], [])
        listeners.tell(grants, [event(KEYS.grants("T"), 12)])
        assert len(sleeper.noted) == 2  # it is told of each
        listeners.put(late, for_the_pace(KEYS, "T", 2, 10))
        assert late.woken == []

    def test_who_listens_for_a_target_is_known_until_it_is_woken(self) -> None:
        listeners, first, second = Listeners(), Sleeper(), Sleeper()
        wanted = target(1, revision=5)
        listeners.put(first, wanted)
        assert listeners.is_alone(first)
        assert listeners.is_waiting_for(first, wanted)
        assert not listeners.is_waiting_for(first, target(1, revision=5))
        before = next(each for each in wanted.watched if each.key == KEYS.ticket("T", 0))
        listeners.tell(before, [event(before.key, 6)])
        assert not listeners.is_waiting_for(first, wanted)
        listeners.put(second, target(2, revision=6))
        assert not listeners.is_alone(first)

    def test_what_was_missed_that_nobody_wants_any_more_wakes_nobody(self) -> None:
        listeners, sleeper = Listeners(), Sleeper()
        listeners.put(sleeper, target(1, revision=5))
        listeners.miss(FREES, 9)
        assert sleeper.woken == []
        assert FREES not in listeners.revisions

    def test_who_is_left_alone_goes_on_with_the_stream_that_there_is(self) -> None:
        listeners, first, second = Listeners(), Sleeper(), Sleeper()
        listeners.put(first, target(0, revision=5))
        listeners.put(second, target(1, revision=5))
        listeners.remove(first)
        assert not listeners.put(second, target(0, revision=7))

    def test_who_has_looked_before_what_the_stream_has_told_looks_again(self) -> None:
        listeners, late, head = Listeners(), Sleeper(), Sleeper()
        listeners.put(head, target(0, revision=5))
        listeners.put(Sleeper(), target(1, revision=5))
        listeners.tell(TICKETS, [event(KEYS.ticket("T", 77), 9)])
        listeners.put(late, target(2, revision=8))
        assert late.woken == [()]

    def test_what_the_stream_tells_is_no_news_to_who_has_looked_since(self) -> None:
        listeners, second = Listeners(), Sleeper()
        listeners.put(Sleeper(), target(0, revision=5))
        listeners.put(second, target(1, revision=9))
        listeners.tell(TICKETS, [event(KEYS.ticket("T", 0), 9)])
        assert second.woken == []

    def test_one_watch_that_is_ahead_hides_nothing_that_another_still_has_to_tell(self) -> None:
        listeners, head, second = Listeners(), Sleeper(), Sleeper()
        listeners.put(head, target(0, revision=5))
        listeners.put(second, target(1, revision=5))
        listeners.tell(FREES, [event(KEYS.free("T", 1, "T--0"), 9)])
        gone = event(KEYS.ticket("T", 0), 8)
        listeners.tell(TICKETS, [gone])
        assert second.woken == [(gone,)]
        assert (listeners.revisions[TICKETS], listeners.revisions[FREES]) == (8, 9)

    def test_who_has_looked_before_something_that_was_missed_looks_again(self) -> None:
        listeners, sleeper = Listeners(), Sleeper()
        own, before, *_ = target(1, revision=5).watched
        listeners.put(sleeper, target(1, revision=5))
        listeners.miss(own, 5)
        assert sleeper.woken == []
        listeners.miss(before, 7)
        assert sleeper.woken == [()]
        listeners.put(sleeper, target(1, revision=6))  # it has looked, but too early
        assert sleeper.woken == [(), ()]
        listeners.put(sleeper, target(1, revision=7))
        listeners.miss(own, 7)
        assert sleeper.woken == [(), ()]

    def test_of_what_is_quiet_too(self) -> None:
        listeners, sleeper = Listeners(), Sleeper()
        paced = for_the_pace(KEYS, "T", 1, 5)
        listeners.put(sleeper, paced)
        listeners.miss(next(each for each in paced.watched if each.is_quiet), 6)
        assert sleeper.woken == [()]

    def test_who_is_alone_is_so_until_another_listens(self) -> None:
        listeners, first, second = Listeners(), Sleeper(), Sleeper()
        alone = []
        for listener in (first, second):
            listeners.put(listener, target(0, revision=5))
            alone.append(listeners.is_for_one)
        listeners.remove(first)
        assert [*alone, listeners.is_for_one] == [True, False, True]

    def test_of_a_thousand_only_the_one_behind_is_woken_by_a_ticket_that_goes(self) -> None:
        listeners, sleepers = Listeners(), [Sleeper() for _ in range(1000)]
        for number, sleeper in enumerate(sleepers):
            listeners.put(sleeper, target(number, revision=5))
        before = [len(sleeper.woken) for sleeper in sleepers]
        gone = event(KEYS.ticket("T", 500), 6)
        listeners.tell(TICKETS, [gone])
        news = [sleeper.woken[known:] for sleeper, known in zip(sleepers, before)]
        assert {number: each for number, each in enumerate(news) if each} == {
            500: [(gone,)],
            501: [(gone,)],
        }

    def test_who_was_woken_is_left_alone_until_it_listens_again(self) -> None:
        listeners, head = Listeners(), Sleeper()
        listeners.put(head, target(0, revision=5))
        for revision in (6, 7):
            listeners.tell(FREES, [event(KEYS.free("T", revision, "T--0"), revision)])
        assert len(head.woken) == 1
        listeners.put(head, target(0, revision=7))
        listeners.tell(FREES, [event(KEYS.free("T", 8, "T--0"), 8)])
        assert len(head.woken) == 2

    def test_the_end_of_a_claim_does_not_hide_what_it_frees(self) -> None:
        listeners, head = Listeners(), Sleeper()
        listeners.put(head, target(0, revision=5))
        freed = event(KEYS.free("T", 1, "T--0"), 6)
        listeners.tell(ALIVES, [event(KEYS.alive("T", 9), 6)])
        listeners.tell(FREES, [freed])
        assert head.woken == [(), (freed,)]

    def test_after_a_compaction_all_look_again_and_the_watches_begin_there(self) -> None:
        listeners, sleepers = Listeners(), [Sleeper() for _ in range(3)]
        for number, sleeper in enumerate(sleepers):
            listeners.put(sleeper, target(number, revision=5))
        listeners.have_all_look()
        assert [sleeper.woken for sleeper in sleepers] == [[()]] * 3
        assert listeners.revisions == {}
        assert listeners.put(sleepers[1], target(1, revision=50))
        assert listeners.revisions == dict.fromkeys((TICKETS, FREES, ALIVES, POOL, SETTINGS), 50)
        assert not listeners.put(sleepers[2], target(2, revision=51))
        assert [sleeper.woken for sleeper in sleepers] == [[()]] * 3

    def test_listener_awake_while_events_are_lost_looks_once_more(self) -> None:
        """It may have looked before a restore, at a revision that the store hasn't reached now."""
        listeners, awake, asleep = Listeners(), Sleeper(), Sleeper()
        listeners.put(awake, target(0, revision=500))
        listeners.put(asleep, target(1, revision=500))
        listeners.tell(FREES, [event(KEYS.free("T", 501, "T--0"), 501)])
        listeners.have_all_look()
        listeners.put(asleep, target(1, revision=50))
        listeners.put(awake, target(0, revision=501))
        assert (len(awake.woken), len(asleep.woken)) == (2, 1)
        listeners.put(awake, target(0, revision=51))
        assert len(awake.woken) == 2
        listeners.tell(FREES, [event(KEYS.free("T", 52, "T--0"), 52)])
        assert (len(awake.woken), len(asleep.woken)) == (3, 1)

    def test_a_new_stream_begins_where_the_first_begins_that_it_is_for(self) -> None:
        listeners, head = Listeners(), Sleeper()
        listeners.put(head, target(0, revision=5))
        # Another acquisition, hours later, with a ticket of its own.
        listeners.remove(head)
        listeners.put(Sleeper(), at_the_head(KEYS, "T", 99, 500))
        assert set(listeners.revisions.values()) == {500}

    def test_who_still_has_something_to_be_told_misses_nothing_by_a_new_stream(self) -> None:
        listeners, waiting = Listeners(), Sleeper()
        listeners.put(Sleeper(), target(0, revision=5))
        listeners.put(waiting, target(1, revision=5))
        assert listeners.put(Sleeper(), at_the_head(KEYS, "U", 7, 30))
        assert (waiting.woken, listeners.revisions[TICKETS]) == ([], 5)
