"""What the lease proxy's answers mean."""

from __future__ import annotations

import json

import pytest

from leasectl.backends.proxy.protocol import (
    acquire_query,
    granted,
    heeds,
    is_undone,
    was_released,
    with_key,
)
from leasectl.backends.proxy.status import ERROR, status_in
from leasectl.backends.unanswered import Loss, Refused
from leasectl.errors import CanNeverBeMet, NoLease, NotFound, NotSupported
from leasectl.http.messages import Answer

URL = "http://proxy"


def answer(status: int, text: str = "", key: str | None = None) -> Answer:
    return Answer(status, text, {} if key is None else {"idempotency-key": key})


def test_a_request_is_for_one_and_carries_a_key_where_one_is_known() -> None:
    assert acquire_query("T") == {"type": "T", "count": "1"}
    assert with_key("T-1/1/0") == {"Idempotency-Key": "T-1/1/0"}
    assert with_key("") == {}


def test_a_server_that_sends_the_key_back_heeds_it() -> None:
    assert heeds(answer(200, key="k"), "k")
    assert not heeds(answer(200, key="other"), "k")
    assert not heeds(answer(200), "k")


def test_a_grant_names_what_was_granted() -> None:
    for status in (200, 201, 203, 299):  # whatever something in between makes of it
        names = granted(URL, answer(status, '{"names": ["T--00", "T--01"]}'))
        assert names == ["T--00", "T--01"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "",
        "no JSON",
        "[]",
        '{"names": null}',
        '{"names": [1]}',
        '"names"',
    ],
)
def test_of_an_answer_that_names_nothing_nobody_knows_what_was_granted(text: str) -> None:
    for status in (200, 201, 203):
        with pytest.raises(Loss, match="no resource name"):
            granted(URL, answer(status, text))


def test_an_answer_that_names_none_may_name_one_the_next_time() -> None:
    with pytest.raises(Refused, match="granted no resource"):
        granted(URL, answer(200, '{"names": []}'))


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (404, "resource type not found", NotFound),
        (400, "bad", CanNeverBeMet),
        (500, 'Failed to acquire lease "T": resources not found', NoLease),
        (500, "context deadline exceeded", NoLease),
        (504, "context deadline exceeded", NoLease),
        (502, "bad gateway", Loss),
        (504, "", Loss),
        (500, "", Refused),
        (503, "busy", Refused),
        (302, "", Refused),
        (300, '{"names": ["T--00"]}', Refused),
        (408, "too slow", Refused),
        (425, "", Refused),
        (429, "slow down", Refused),
        (428, "", CanNeverBeMet),
    ],
)
def test_another_status_is_an_error_in_the_servers_words(
    status: int, text: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        granted(URL, answer(status, text))
    assert type(refused.value) is error
    assert str(refused.value) == f"{URL} answered {status}: {text or 'nothing'}"


def test_a_server_that_sends_us_elsewhere_is_told_of_with_where() -> None:
    sent_on = Answer(302, "<html>Found</html>", {"location": "https://login/?token=x"})
    with pytest.raises(Refused, match="answered 302: it redirects to https://login/, which isn't"):
        granted(URL, sent_on)


def test_what_isnt_leased_is_as_good_as_released() -> None:
    for good in (answer(200), answer(202), answer(204), answer(200, " \n")):
        assert was_released(URL, good)
    for gone in (
        "no resource name T--00",
        "status 401 Unauthorized, statusCode 401 releasing T--00",
        "status 404 Not Found, statusCode 404 releasing T--00",
    ):
        assert not was_released(URL, answer(500, f"Failed to release lease T--00: {gone}"))
    page = answer(200, "<html>down for maintenance: no resource name</html>")
    failed = (answer(500, "busy"), answer(500, "statusCode 500 releasing T--00"), answer(404))
    for bad in (*failed, answer(304), page):
        with pytest.raises(Refused):
            was_released(URL, bad)
    for unknown in (answer(502), answer(504, "<html>Gateway Time-out</html>")):
        with pytest.raises(Loss):
            was_released(URL, unknown)


def test_only_a_server_that_heeds_keys_undoes_what_came_with_one() -> None:
    assert is_undone(URL, answer(204, key="k"), "k")
    assert is_undone(URL, answer(200, key="k"), "k")
    assert not is_undone(URL, answer(204), "k")
    assert not is_undone(URL, answer(400, key="k"), "k")
    with pytest.raises(Refused):
        is_undone(URL, answer(500, key="k"), "k")


def test_only_some_servers_tell_of_pools() -> None:
    assert status_in(URL, answer(200, '{"pools": []}')) == {"pools": []}
    with pytest.raises(NotFound, match="no such pool"):
        status_in(URL, answer(404, json.dumps({ERROR: "no such pool"})))
    for without in (answer(404, "not found"), answer(405)):
        with pytest.raises(NotSupported):
            status_in(URL, without)
    for wrong in (answer(200, "<html>"), answer(201, '{"pools": []}'), answer(500)):
        with pytest.raises(Refused):
            status_in(URL, wrong)
