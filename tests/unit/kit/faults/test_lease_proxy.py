"""The lease proxy of the tests does what ci-operator's does: its protocol, and clients that go."""

from __future__ import annotations

import time

import pytest

from tests.kit.faults.fixture import StartFaultProxy
from tests.kit.faults.process import FaultProxy
from tests.kit.faults.raw_client import RawClient
from tests.kit.support import eventually

NOT_ALLOWED = "Method {} not allowed, POST requests only.\n"


@pytest.fixture
def proxy(fault_proxy: StartFaultProxy) -> FaultProxy:
    """One with three resources of type T, and nothing that goes wrong."""
    return fault_proxy("T=3")


def client(proxy: FaultProxy) -> RawClient:
    return RawClient(proxy.url)


# ---- the protocol


def test_refusals_have_the_codes_and_texts_of_the_real_one(proxy: FaultProxy) -> None:
    cases = [
        ("GET", "/lease/acquire?type=T", "", 405, NOT_ALLOWED.format("GET")),
        ("PUT", "/lease/release", "", 405, NOT_ALLOWED.format("PUT")),
        ("POST", "/lease/acquire", "", 400, "type is required\n"),
        ("POST", "/lease/acquire?type=&count=x", "", 400, "type is required\n"),
        *[
            ("POST", f"/lease/acquire?type=T&count={count}", "", 400, text)
            for count in ("-1", "two", "1.5", "0x1", "99999999999999999999", "1_0")
            for text in [f'parameter "count" is not valid: {count}\n']
        ],
        ("POST", "/lease/acquire?type=U", "", 404, _not_found("U")),
        ("POST", "/lease/release", "", 400, "unmarshal request body: unexpected end of JSON input"),
        ("POST", "/lease/release", "{", 400, "unmarshal request body: "),
        ("POST", "/lease/release", "[]", 400, "unmarshal request body: "),
        ("POST", "/lease/release", '{"names":[1]}', 400, "unmarshal request body: "),
        ("POST", "/lease/renew", "", 404, "404 page not found\n"),
        ("POST", "/lease/acquire/", "", 404, "404 page not found\n"),
        ("GET", "/_test/state", "", 404, "404 page not found\n"),
    ]
    with client(proxy) as connection:
        for method, target, body, status, text in cases:
            got = connection.ask(method, target, body)
            assert (got.status, got.text[: len(text)]) == (status, text), target
            assert got.headers["content-type"] == "text/plain; charset=utf-8"
            assert got.headers["x-content-type-options"] == "nosniff"
    assert proxy.leased == []


def _not_found(pool_type: str) -> str:
    return f'Failed to acquire lease "{pool_type}": resource type not found\n'


def test_a_grant_is_a_list_of_names_as_json(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        got = connection.ask("POST", "/lease/acquire?type=T")
        assert (got.status, got.text) == (200, '{"names":["T--00"]}')
        assert got.headers["content-type"] == "application/json"
        assert connection.acquire(count=2).names == ["T--01", "T--02"]
    assert proxy.leased == ["T--00", "T--01", "T--02"]


@pytest.mark.parametrize("pool_type", ["T", "no-such-type"])
def test_asked_for_nothing_it_grants_nothing(proxy: FaultProxy, pool_type: str) -> None:
    with client(proxy) as connection:
        assert connection.acquire(pool_type, 0).text == '{"names":[]}'


def test_resources_may_have_names_of_their_own(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=a,b", "u--v=1")
    with client(proxy) as connection:
        assert connection.acquire("T", 2).names == ["a", "b"]
        assert connection.acquire("u--v").names == ["u--v--00"]


def test_a_release_gives_back_and_says_nothing(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        names = connection.acquire(count=2).names
        got = connection.release(*names)
        assert (got.status, got.text) == (204, "")
        assert connection.release().status == 204
    assert proxy.leased == []


def test_a_release_stops_at_the_first_error(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        connection.acquire(count=3)
        got = connection.release("T--00", "T--01", "nonsense", "T--02")
    assert got.status == 500
    assert got.text == (
        "Failed to release lease nonsense: no resource name nonsense\nReleased: T--00 T--01\n"
    )
    assert proxy.leased == ["T--02"]


def test_what_was_released_is_no_name_any_more(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        connection.acquire()
        connection.release("T--00")
        got = connection.release("T--00")
    assert got.status == 500
    assert got.text == "Failed to release lease T--00: no resource name T--00\nReleased: \n"
    assert proxy.history().released_unleased == ["T--00"]


def test_what_failed_to_be_released_once_can_never_be(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("fail-unit path=release nth=1 unit=2 text=down",))
    with client(proxy) as connection:
        connection.acquire(count=3)
        got = connection.release("T--00", "T--01", "T--02")
        assert got.text == "Failed to release lease T--01: down\nReleased: T--00\n"
        assert "no resource name T--01" in connection.release("T--01").text
    assert proxy.state()["forgotten"] == ["T--01"]
    assert proxy.history().forgotten == {"T--01"}
    assert proxy.leased == ["T--01", "T--02"]


# ---- waiting


@pytest.mark.parametrize("poll_seconds", [None, 0.02])
def test_an_acquire_waits_until_something_is_free(
    fault_proxy: StartFaultProxy, poll_seconds: float | None
) -> None:
    proxy = fault_proxy("T=1", poll_seconds=poll_seconds)
    with client(proxy) as holder, client(proxy) as waiter:
        holder.acquire()
        waiter.start_acquire()
        eventually(lambda: proxy.waiting)
        holder.release("T--00")
        assert waiter.read_answer().names == ["T--00"]
    assert proxy.waiting == []


def test_other_jobs_may_have_what_a_client_waits_for(proxy: FaultProxy) -> None:
    assert proxy.occupy("T", 5) == ["T--00", "T--01", "T--02"]
    with client(proxy) as waiter:
        waiter.start_acquire()
        eventually(lambda: proxy.waiting)
        assert proxy.leased == []
        assert proxy.vacate("T--01") == ["T--01"]
        assert waiter.read_answer().names == ["T--01"]
    assert proxy.vacate() == ["T--00", "T--02"]


def test_a_wait_has_an_end_and_what_was_taken_before_it_stays_leased(
    fault_proxy: StartFaultProxy,
) -> None:
    proxy = fault_proxy("T=1", acquire_timeout_seconds=0.05)
    with client(proxy) as connection:
        got = connection.acquire(count=2)
    assert got.status == 500
    assert got.text == 'Failed to acquire lease "T": resources not found\n'
    assert proxy.leased == ["T--00"]
    assert proxy.history().lost == {"T--00"}


def test_an_error_after_the_first_unit_leaves_it_leased(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("fail-unit nth=1 unit=2 text=down", "fail-unit unit=3"))
    with client(proxy) as connection:
        got = connection.acquire(count=2)
        assert (got.status, got.text) == (500, 'Failed to acquire lease "T": down\n')
        assert proxy.leased == ["T--00"]
        assert connection.acquire(count=2).status == 500
    assert proxy.history().lost == {"T--00", "T--01", "T--02"}


# ---- clients that go away


def test_a_half_close_ends_the_wait_at_once_and_is_answered(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=1", poll_seconds=60)
    proxy.occupy("T")
    with client(proxy) as waiter:
        waiter.start_acquire()
        eventually(lambda: proxy.waiting)
        waiter.half_close()
        got = waiter.read_answer()
        assert got.status == 500
        assert got.text == 'Failed to acquire lease "T": context canceled\n'
        assert waiter.read_to_end() == b""
    assert proxy.leased == []
    assert proxy.waiting == []


def test_a_grant_that_raced_the_half_close_is_still_written(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=2", faults=("hang nth=1", "hang-after nth=2"))
    for name in ("T--00", "T--01"):
        with client(proxy) as waiter:
            waiter.start_acquire()
            eventually(lambda: proxy.hanging)
            waiter.half_close()
            proxy.resume()
            assert waiter.read_answer().names == [name]
            assert waiter.read_to_end() == b""
    assert proxy.history().lost == set()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_goes_away_stops_waiting(proxy: FaultProxy, how: str) -> None:
    proxy.occupy("T", 3)
    waiter = client(proxy)
    waiter.start_acquire()
    eventually(lambda: proxy.waiting)
    waiter.reset() if how == "reset" else waiter.close()
    eventually(lambda: not proxy.waiting)
    proxy.vacate()
    assert proxy.leased == []


def test_what_is_left_to_be_read_hides_that_the_client_goes_away(proxy: FaultProxy) -> None:
    # As net/http: it watches for the end only once it has read all that the client sent.
    proxy.occupy("T", 3)
    waiter = client(proxy)
    waiter.send("POST", "/lease/acquire?type=T", "a body that nobody reads")
    eventually(lambda: proxy.waiting)
    waiter.close()
    with client(proxy) as other:
        other.start_acquire()
        eventually(lambda: len(proxy.waiting) == 2)
        other.close()
        eventually(lambda: len(proxy.waiting) == 1)
    proxy.vacate()
    assert eventually(lambda: proxy.leased) == ["T--00"]


def test_a_grant_whose_answer_cannot_be_written_stays_leased(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=1", faults=("hang-after",))
    waiter = client(proxy)
    waiter.start_acquire()
    eventually(lambda: proxy.hanging)
    waiter.reset()
    eventually(lambda: not proxy.hanging)
    assert proxy.leased == ["T--00"]
    assert proxy.history().lost == {"T--00"}


# ---- the request key


def test_without_the_option_a_repeated_key_is_another_grant(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        first = connection.acquire(Idempotency_Key="h/1/0")
        assert connection.acquire(Idempotency_Key="h/1/0").names == ["T--01"]
    assert first.names == ["T--00"]
    assert "idempotency-key" not in first.headers


def test_a_repeated_key_gets_the_same_grant(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", idempotent=True, faults=("reset-after nth=1",))
    with client(proxy) as connection, pytest.raises(ConnectionResetError):
        connection.acquire(Idempotency_Key="h/1/0")
    assert proxy.history().lost == {"T--00"}
    with client(proxy) as connection:
        again = connection.acquire(Idempotency_Key="h/1/0")
        assert again.names == ["T--00"]
        assert again.headers["idempotency-key"] == "h/1/0"
        assert connection.acquire(Idempotency_Key="h/1/1").names == ["T--01"]
    assert proxy.history().lost == set()


def test_two_waits_with_one_key_get_one_grant(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", idempotent=True)
    proxy.occupy("T", 3)
    with client(proxy) as first, client(proxy) as second:
        first.start_acquire(Idempotency_Key="k")
        second.start_acquire(Idempotency_Key="k")
        eventually(lambda: len(proxy.waiting) == 2)
        proxy.vacate()
        assert first.read_answer().names == second.read_answer().names == proxy.leased


def test_a_release_repeated_with_its_key_frees_nothing_of_somebody_else(
    fault_proxy: StartFaultProxy,
) -> None:
    proxy = fault_proxy("T=1", idempotent=True)
    with client(proxy) as connection:
        connection.acquire(Idempotency_Key="k")
        assert connection.release("T--00", Idempotency_Key="k").status == 204
        connection.acquire(Idempotency_Key="l")
        assert "no resource name" in connection.release("T--00", Idempotency_Key="k").text
        assert proxy.leased == ["T--00"]
        # Without a key, as with the real one.
        assert connection.release("T--00").status == 204


def test_a_release_of_no_names_undoes_what_its_key_got(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", idempotent=True)
    with client(proxy) as connection:
        connection.acquire(Idempotency_Key="h/1/0")
        connection.acquire(Idempotency_Key="h/10/0")
        undone = connection.release(Idempotency_Key="h/1")
        assert (undone.status, undone.headers["idempotency-key"]) == (204, "h/1")
        assert proxy.leased == ["T--01"]
        assert connection.release(Idempotency_Key="h/2").status == 204
        assert connection.release().status == 204
        assert proxy.leased == ["T--01"]


def test_to_the_real_one_a_release_of_no_names_means_nothing(proxy: FaultProxy) -> None:
    with client(proxy) as connection:
        connection.acquire(Idempotency_Key="h/1/0")
        undone = connection.release(Idempotency_Key="h/1")
        assert (undone.status, "idempotency-key" in undone.headers) == (204, False)
        assert proxy.leased == ["T--00"]


def test_a_key_is_forgotten_when_its_name_is_released(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=2", idempotent=True)
    with client(proxy) as connection:
        connection.acquire(Idempotency_Key="k")
        connection.release("T--00")
        proxy.occupy("T")
        assert connection.acquire(Idempotency_Key="k").names == ["T--01"]


# ---- Boskos behind it


def test_when_boskos_is_away_it_says_so_after_a_long_time(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=1", faults=("boskos-away seconds=0.2 nth=2,3",))
    with client(proxy) as connection:
        connection.acquire()
        before = time.monotonic()
        got = connection.acquire()
        assert time.monotonic() - before >= 0.2
        assert got.status == 500
        assert got.text.startswith('Failed to acquire lease "T": Post "http://boskos/')
        assert "connect: connection refused" in got.text
        assert "connection refused" in connection.release("T--00").text
        assert "no resource name T--00" in connection.release("T--00").text
    assert proxy.history().forgotten == {"T--00"}


def test_a_lease_that_boskos_took_back_is_released_late_and_not_found_then(
    fault_proxy: StartFaultProxy,
) -> None:
    proxy = fault_proxy("T=2", reaped_seconds=0.3)
    with client(proxy) as holder, client(proxy) as other:
        assert holder.acquire(count=2).names == ["T--00", "T--01"]
        assert proxy.reap("T--00") == ["T--00"]
        assert proxy.leased == ["T--01"]
        before = time.monotonic()
        holder.send("POST", "/lease/release", '{"names":["T--00"]}')
        assert other.acquire().names == ["T--00"]
        assert time.monotonic() - before >= 0.3  # nobody was served meanwhile
        assert "statusCode 401 releasing T--00" in holder.read_answer().text
        assert other.release("T--00").status == 204
        assert "no resource name T--00" in holder.release("T--00").text
    assert proxy.leased == ["T--01"]


def test_the_place_of_who_went_away_stays_in_the_way(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=2", ghost_seconds=0.5)
    proxy.occupy("T", 2)
    with client(proxy) as first, client(proxy) as second:
        first.start_acquire()
        eventually(lambda: len(proxy.waiting) == 1)
        second.start_acquire()
        eventually(lambda: len(proxy.waiting) == 2)
        first.close()
        eventually(lambda: len(proxy.waiting) == 1)
        gone = time.monotonic()
        proxy.vacate("T--00")
        assert second.read_answer().names == ["T--00"]
        assert time.monotonic() - gone >= 0.4
        assert second.release("T--00").status == 204
        third = second.acquire(count=1)
        assert third.names == ["T--00"]


def test_who_is_second_in_the_queue_may_have_the_second_that_is_free(
    fault_proxy: StartFaultProxy,
) -> None:
    proxy = fault_proxy("T=2", ghost_seconds=60)
    proxy.occupy("T", 2)
    with client(proxy) as first, client(proxy) as second:
        first.start_acquire()
        eventually(lambda: len(proxy.waiting) == 1)
        first.close()
        second.start_acquire()
        eventually(lambda: len(proxy.waiting) == 1)
        proxy.vacate()
        assert second.read_answer().names == ["T--00"]
