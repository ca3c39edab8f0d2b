"""Which watches are on a stream, as others come and go on it."""

from __future__ import annotations

import json

import pytest

from leasectl.engines.etcd.gateway.requests import KeyValue, decode
from leasectl.engines.etcd.waiting.events import WatchLine
from leasectl.engines.etcd.waiting.stream_watches import StreamWatches
from leasectl.engines.etcd.waiting.targets import Watched
from leasectl.http.no_answer import NoAnswer

OWN, OTHER, POOL = (
    Watched("own", deletes=True),
    Watched("other", deletes=True),
    Watched("pool", puts=True),
)
FREES = Watched("free/", puts=True)


def begin(*watched: Watched) -> StreamWatches:
    """A stream with watches that are to tell what came after revision 5; none has begun."""
    return StreamWatches(dict.fromkeys(watched, 5), from_now=True, has_progress=False)


def begun(watch: int, revision: int = 5) -> WatchLine:
    return WatchLine(watch, True, revision, ())


def told(watch: int) -> WatchLine:
    return WatchLine(watch, False, 0, (KeyValue("key", "", 0, 9),))


def ended(watch: int) -> WatchLine:
    return WatchLine(watch, False, 0, (), is_over=True)


def asked(text: str) -> list[str]:
    """The keys of the watches that a text asks for, and the numbers of those that it ends."""
    decoder, found = json.JSONDecoder(), []
    while text:
        said, end = decoder.raw_decode(text)
        text = text[end:]
        create = said.get("create_request")
        found.append(decode(create["key"]) if create else said["cancel_request"]["watch_id"])
    return found


class TestStreamWatches:
    def test_they_begin_in_the_order_in_which_they_were_asked_for(self) -> None:
        watches = begin(OWN, POOL)
        assert asked(watches.body) == ["own", "pool"]
        assert [watches.hear(begun(3)), watches.have_begun] == [OWN, False]
        assert [watches.hear(begun(7)), watches.have_begun] == [POOL, True]
        assert [watches.hear(told(7)), watches.hear(told(3)), watches.hear(told(4))] == [
            POOL,
            OWN,
            None,
        ]

    def test_only_what_is_new_is_asked_for(self) -> None:
        watches = begin(OWN, POOL)
        watches.hear(begun(0))
        assert asked(watches.change({POOL: 8, OTHER: 8}) or "") == ["other"]
        watches.hear(begun(1))
        watches.hear(begun(2))
        assert (watches.hear(told(1)), watches.hear(told(2))) == (POOL, OTHER)

    def test_what_nobody_wants_any_more_tells_nothing(self) -> None:
        watches = begin(OWN, POOL)
        watches.hear(begun(0))
        watches.change({})
        watches.hear(begun(1))  # it had not begun yet
        assert (watches.hear(told(0)), watches.hear(told(1))) == (None, None)
        assert watches.have_begun

    def test_what_would_go_on_telling_is_ended(self) -> None:
        watches = begin(OWN, FREES, POOL)
        for number in range(3):
            watches.hear(begun(number))
        assert asked(watches.change({OTHER: 8}) or "") == ["1", "2", "other"]
        watches.hear(ended(2))
        watches.hear(ended(1))
        with pytest.raises(NoAnswer):
            watches.hear(ended(1))

    def test_one_that_ends_by_itself_ends_the_stream(self) -> None:
        watches = begin(OWN)
        watches.hear(begun(0))
        with pytest.raises(NoAnswer):
            watches.hear(ended(0))

    def test_what_is_wanted_again_is_asked_for_again(self) -> None:
        watches = begin(FREES)
        watches.hear(begun(0))
        watches.change({OWN: 8})
        assert asked(watches.change({OWN: 8, FREES: 9}) or "") == ["free/"]
        watches.hear(begun(1))
        watches.hear(begun(2))
        assert (watches.hear(told(0)), watches.hear(told(2))) == (None, FREES)

    def test_who_begins_later_than_it_has_to_is_told_of_once_all_have(self) -> None:
        watches = begin(OWN, POOL)
        watches.hear(begun(0, revision=6))
        assert watches.take_late() == {}
        watches.hear(begun(1))
        assert watches.take_late() == {OWN: (5, 6)}
        assert watches.take_late() == {}

    def test_what_is_not_wanted_any_more_was_not_late(self) -> None:
        watches = begin(OWN)
        watches.hear(begun(0, revision=6))
        watches.change({OTHER: 8})
        watches.hear(begun(1, revision=9))
        assert watches.take_late() == {OTHER: (8, 9)}

    def test_watches_that_begin_where_they_have_to_are_never_late(self) -> None:
        watches = StreamWatches({OWN: 5}, from_now=False, has_progress=False)
        watches.hear(begun(0, revision=6))
        assert watches.take_late() == {}

    def test_after_so_many_a_new_stream_is_due(self) -> None:
        watches = begin(POOL)
        watches.hear(begun(0))
        number = 0
        while watches.change({POOL: 5, Watched(f"ticket-{number}", deletes=True): 5}) is not None:
            number += 1
            watches.hear(begun(number))
        assert 100 < number < 1000
