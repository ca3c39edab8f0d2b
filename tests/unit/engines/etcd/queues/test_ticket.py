"""What a waiter's process knows of its ticket in etcd."""

from __future__ import annotations

import pytest

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.queues.ticket import EtcdTicket
from leasectl.engines.etcd.queues.view import QueueView
from leasectl.engines.etcd.waiting.targets import at_the_head, behind
from leasectl.model import Claimant, Request
from tests.kit.support import ManualClock

KEYS = Keys("/p", "here")
REVISION = 10


def new_ticket(request: Request | None = None, time: ManualClock | None = None) -> EtcdTicket:
    return EtcdTicket(
        Claimant("me", "me@host", request or Request("T")),
        KEYS,
        etcd_lease_id=7,
        ttl_seconds=60,
        clock=(time or ManualClock()).clock,
    )


def free(name: str, revision: int, fence: int = 1) -> KeyValue:
    return KeyValue(
        KEYS.free("T", fence, name), '{"last_holder": null, "transitions": 0}', 1, revision
    )


def view(*page: KeyValue, before: KeyValue | None = None) -> QueueView:
    """What is seen at a revision."""
    return QueueView(
        revision=REVISION,
        own=None,
        before=before,
        pool=None,
        grants=None,
        expired=0,
        page=page,
    )


class TestItsEtcdLease:
    def test_it_is_overdue_a_ttl_after_the_last_request_that_renewed_it_was_sent(self) -> None:
        time = ManualClock()
        ticket = new_ticket(time=time)
        time.advance(59)
        assert not ticket.is_overdue
        sent_at = time.clock.elapsed()
        time.advance(5)  # until the answer
        ticket.note_sent(sent_at)
        time.advance(54)
        assert not ticket.is_overdue
        time.advance(1)
        assert ticket.is_overdue

    def test_the_date_of_that_on_the_wall_clock_does_not_depend_on_when_it_is_asked(self) -> None:
        time = ManualClock()
        ticket, sent = new_ticket(time=time), time.clock.wall()
        time.advance(20)
        assert ticket.renewed == pytest.approx(sent)


class TestItsPosition:
    def test_it_listens_for_the_end_of_the_ticket_before_it(self) -> None:
        ticket, before = new_ticket(), KeyValue(KEYS.ticket("T", 3), "", 5, 5)
        ticket.wait_behind(view(before=before))
        assert ticket.target == behind(KEYS, "T", 7, before.key, REVISION)
        assert not ticket.is_head

    def test_what_was_seen_as_it_came_to_the_head_is_used_once(self) -> None:
        ticket, seen = new_ticket(), view(free("T--0", 4))
        ticket.reach_head(seen)
        assert ticket.is_head
        assert (ticket.take_view(), ticket.take_view()) == (seen, None)

    def test_with_too_little_at_the_head_it_listens_for_resources(self) -> None:
        ticket = new_ticket()
        ticket.reach_head(view())
        ticket.wait_at_head(view())
        assert ticket.target == at_the_head(KEYS, "T", 7, REVISION)


class TestItsNews:
    def waiting(self, request: Request, *page: KeyValue) -> EtcdTicket:
        """At the head, where it saw that page, which was too little."""
        ticket = new_ticket(request)
        ticket.reach_head(view(*page))
        ticket.wait_at_head(view(*page))
        return ticket

    def test_what_was_seen_and_what_was_freed_since_come_to_a_view(self) -> None:
        ticket = self.waiting(Request("T", count=2), free("T--0", 4))
        ticket.add_news((free("T--1", 11), free("T--2", 12)))
        guessed = ticket.guess_view()
        assert guessed is not None
        assert guessed.page == (free("T--0", 4), free("T--1", 11))

    def test_what_was_taken_and_given_back_since_is_there_once(self) -> None:
        ticket = self.waiting(Request("T", count=2), free("T--0", 4))
        ticket.add_news((free("T--0", 12, fence=11),))
        assert ticket.guess_view() is None
        ticket = self.waiting(Request("T", count=2), free("T--0", 4))
        ticket.add_news((free("T--0", 12, fence=11), free("T--1", 14, fence=13)))
        guessed = ticket.guess_view()
        assert guessed is not None
        assert guessed.page == (free("T--0", 12, fence=11), free("T--1", 14, fence=13))

    def test_it_is_used_once(self) -> None:
        ticket = self.waiting(Request("T"))
        ticket.add_news((free("T--1", 11),))
        known = [(bool(ticket.news), ticket.guess_view() is not None) for _ in range(2)]
        assert known == [(True, True), (False, False)]

    def test_too_little_even_so_is_no_view(self) -> None:
        ticket = self.waiting(Request("T", count=2))
        ticket.add_news((free("T--1", 11),))
        assert ticket.guess_view() is None

    def test_what_was_freed_before_the_look_is_no_news(self) -> None:
        ticket = self.waiting(Request("T"))
        ticket.add_news((free("T--1", REVISION),))
        assert ticket.guess_view() is None

    def test_a_look_makes_news_old(self) -> None:
        ticket = self.waiting(Request("T"))
        ticket.add_news((free("T--1", 11),))
        ticket.begin_look()
        assert ticket.guess_view() is None

    def test_news_of_something_else_as_well_has_to_be_looked_at(self) -> None:
        ticket = self.waiting(Request("T"))
        ticket.add_news((free("T--1", 11), KeyValue(KEYS.pool("T"), "", 1, 12)))
        assert ticket.guess_view() is None

    def test_who_wants_one_by_name_has_to_look(self) -> None:
        ticket = self.waiting(Request("T", name="T--1"))
        ticket.add_news((free("T--1", 11),))
        assert ticket.guess_view() is None

    def test_who_was_not_at_the_head_has_to_look(self) -> None:
        ticket = new_ticket()
        ticket.wait_behind(view(before=KeyValue(KEYS.ticket("T", 3), "", 5, 5)))
        ticket.add_news((free("T--1", 11),))
        assert ticket.guess_view() is None


def test_a_claim_is_in_doubt_until_it_is_settled() -> None:
    ticket = new_ticket()
    known = [ticket.is_unsure]
    ticket.doubt_claim()
    known.append(ticket.is_unsure)
    ticket.settle_claim()
    known.append(ticket.is_unsure)
    assert known == [False, True, False]
