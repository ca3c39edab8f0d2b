"""How long a request to a cluster may take, and what is said when nobody answers in time."""

from __future__ import annotations

import socket
import time

import pytest

from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.answers import Failures
from leasectl.engines.etcd.gateway import Gateway
from leasectl.errors import BackendUnreachable
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.system.clock import Clock
from tests.kit.peculiar import HEAD, SLOW, StartPeculiar, drip_body, drip_head
from tests.kit.support import clock_without_stalls


def test_a_deadline_holds_whatever_the_members_do(
    serve: StartPeculiar,
) -> None:
    address = EtcdAddress(tuple(serve(conversation).endpoint for conversation in SLOW))
    clock = clock_without_stalls()
    gateway = Gateway(address, clock=clock, deadline_seconds=1.0, attempt_seconds=0.15)
    since = time.monotonic()
    with pytest.raises(BackendUnreachable, match="no answer from etcd within 1s") as raised:
        gateway.read()
    assert time.monotonic() - since >= 1.0
    assert all(endpoint in str(raised.value) for endpoint in address.endpoints)
    gateway.close()


def test_a_deadline_is_named_as_people_write_it(serve: StartPeculiar) -> None:
    gateway = Gateway(
        EtcdAddress((serve(SLOW[0]).endpoint,)), clock=Clock(), deadline_seconds=1 / 3
    )
    with pytest.raises(BackendUnreachable, match=r"no answer from etcd within 0\.33s: "):
        gateway.read()
    gateway.close()


def test_members_that_drip_do_not_keep_a_request_from_one_that_answers(
    serve: StartPeculiar,
) -> None:
    body = b'{"header":{"revision":"7"},"succeeded":true}'

    def answer_well(client: socket.socket) -> None:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    address = EtcdAddress(tuple(serve(x).endpoint for x in (drip_head, drip_body, answer_well)))
    gateway = Gateway(address, clock=Clock(), deadline_seconds=1000, attempt_seconds=0.2)
    outcome = gateway.read()
    assert outcome.revision == 7
    assert outcome.repeated
    gateway.close()


class TestFailures:
    def test_each_member_gives_one_reason_and_each_advice_comes_once(self) -> None:
        failures = Failures()
        for endpoint in ("http://a:1", "http://b:1"):
            failures.note(endpoint, NoAnswer("hung up", advice="use TLS"))
            failures.note(endpoint, NoAnswer(NOT_IN_TIME))
        said = "no answer from etcd within 2s: http://a:1: hung up, http://b:1: hung up; use TLS"
        assert failures.text(2.0) == said

    def test_the_last_reason_counts_unless_it_tells_less(self) -> None:
        failures = Failures()
        for text in (NOT_IN_TIME, "refused", "no leader", NOT_IN_TIME):
            failures.note("http://a:1", NoAnswer(text))
        assert failures.text() == "no answer from etcd: http://a:1: no leader"
        assert failures.text(2.0).endswith("no leader; is it up, and does it have a quorum?")

    def test_who_had_no_time_to_ask_says_so(self) -> None:
        text = "no answer from etcd within 0s; is it up, and does it have a quorum?"
        assert Failures().text(0) == text
