"""Faults in front of another server: nothing else changes on the way, and the log still tells."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path

import pytest

from tests.kit.faults.fixture import StartFaultProxy
from tests.kit.faults.process import FaultProxy
from tests.kit.faults.raw_client import Got, RawClient
from tests.kit.support import eventually


@pytest.fixture
def server(fault_proxy: StartFaultProxy) -> FaultProxy:
    """The one behind; it knows keys, as leasectl's own server does."""
    return fault_proxy("T=3", idempotent=True)


@pytest.fixture
def relay(server: FaultProxy, fault_proxy: StartFaultProxy) -> FaultProxy:
    return fault_proxy(upstream=server.url)


def test_requests_and_answers_pass_unchanged(server: FaultProxy, relay: FaultProxy) -> None:
    def everything(url: str) -> list[Got]:
        with RawClient(url) as connection:
            answers = [
                connection.acquire(count=2),
                connection.acquire(Idempotency_Key="k"),
                connection.acquire("U"),
                connection.ask("GET", "/lease/acquire?type=T"),
                connection.release("T--00", "nonsense", "T--01"),
                connection.release("T--01", "T--02"),
            ]
        return [
            got._replace(headers={**got.headers, "date": "", "x-content-type-options": ""})
            for got in answers
        ]

    assert everything(relay.url) == everything(server.url)
    (forwarded,) = {each["idempotency_key"] for each in server.history().of("request")} - {None}
    assert forwarded == "k"
    assert relay.history().leased == set()
    assert relay.history().released_unleased == ["nonsense"]


def test_an_answer_is_lost_on_the_way_and_the_key_finds_it(
    server: FaultProxy, relay: FaultProxy
) -> None:
    relay.faults("reset-after nth=1", "reset-before nth=2")
    for _ in range(2):
        with RawClient(relay.url) as connection, pytest.raises(ConnectionResetError):
            connection.acquire(Idempotency_Key="k")
    assert relay.history().lost == {"T--00"}
    with RawClient(relay.url) as connection:
        assert connection.acquire(Idempotency_Key="k").names == ["T--00"]
    assert relay.history().lost == set()
    assert relay.leased == server.leased == ["T--00"]


def test_a_half_close_is_passed_on_and_its_answer_comes_back(
    server: FaultProxy, relay: FaultProxy
) -> None:
    server.occupy("T", 3)
    with RawClient(relay.url) as waiter:
        waiter.start_acquire()
        eventually(lambda: server.waiting)
        assert len(relay.waiting) == 1
        waiter.half_close()
        assert "context canceled" in waiter.read_answer().text
        assert waiter.read_to_end() == b""
    assert server.waiting == []


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_goes_away_goes_away_there_too(
    server: FaultProxy, relay: FaultProxy, how: str
) -> None:
    server.occupy("T", 3)
    waiter = RawClient(relay.url)
    waiter.start_acquire()
    eventually(lambda: server.waiting)
    waiter.reset() if how == "reset" else waiter.close()
    # Whichever of the two notes it first: the relay hangs up there before it is done with it here.
    eventually(lambda: not server.waiting and not relay.waiting)


def test_what_is_undone_by_its_key_counts_as_released(
    server: FaultProxy, relay: FaultProxy
) -> None:
    with RawClient(relay.url) as connection:
        connection.acquire(Idempotency_Key="h/1/0")
        connection.acquire(Idempotency_Key="other")
        assert connection.release(Idempotency_Key="h/1").status == 204
    assert relay.leased == server.leased == ["T--01"]
    assert relay.history().leased == {"T--01"}


def test_a_release_that_was_refused_is_none(server: FaultProxy, relay: FaultProxy) -> None:
    server.faults("fail-unit path=release nth=1 unit=2")
    with RawClient(relay.url) as connection:
        connection.acquire(count=3)
        assert connection.release("T--00", "T--01", "T--02").status == 500
        assert connection.release("T--01").status == 500
    assert relay.leased == server.leased == ["T--01", "T--02"]
    assert relay.history().leased == {"T--01", "T--02"}


@pytest.mark.parametrize("keys", [("k", "l"), ("k", "k")])
def test_a_server_that_grants_twice_is_found_out(
    server: FaultProxy, tmp_path: Path, keys: tuple[str, str]
) -> None:
    server.faults({"fault": "not-json", "text": '{"names":["T--00"]}'})
    # Not by the fixture, which wants every history to be right.
    relay = FaultProxy(tmp_path / "relay", [], options=["--upstream", server.url])
    with RawClient(relay.url) as connection:
        for key in keys:
            assert connection.acquire(Idempotency_Key=key).names == ["T--00"]
    relay.close()
    twice = "T--00 was granted to request 2 while request 1 had it"
    assert relay.history().problems() == ([twice] if keys[0] != keys[1] else [])


def test_a_server_that_is_not_there_is_a_bad_gateway(server: FaultProxy, relay: FaultProxy) -> None:
    with RawClient(relay.url) as connection:
        connection.acquire()
        server.kill()
        assert connection.acquire().status == 502
        assert connection.release("T--00").status == 502
    assert relay.leased == ["T--00"]


def test_clients_that_repeat_with_a_key_lose_nothing_whatever_goes_wrong(
    server: FaultProxy, relay: FaultProxy
) -> None:
    relay.faults("reset-before|reset-after|half|500|close-keepalive|drip rate=0.3")

    def until_it_works(url: str, key: str) -> list[str]:
        while True:
            try:
                with RawClient(url) as connection:
                    got = connection.acquire(Idempotency_Key=key)
                    if got.status == 200:
                        return got.names
            except (OSError, http.client.HTTPException):
                continue

    def give_back(url: str, key: str, name: str) -> None:
        while True:
            try:
                with RawClient(url) as connection:
                    got = connection.release(name, Idempotency_Key=key)
                    if got.status == 204 or f"no resource name {name}" in got.text:
                        return
            except (OSError, http.client.HTTPException):
                continue

    def use(number: int) -> None:
        for turn in range(5):
            key = f"handle-{number}/{turn}/0"
            (name,) = until_it_works(relay.url, key)
            give_back(relay.url, key, name)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.leased == relay.leased == []
    assert relay.history().problems() == server.history().problems() == []
    assert relay.history().leased == set()
