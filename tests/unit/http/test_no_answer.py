"""What httpx's errors become."""

from __future__ import annotations

import ssl

import httpx
import pytest

from leasectl.http.no_answer import NOT_IN_TIME, no_answer, too_long

URL = "http://etcd:2379/v3/kv/range"


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("[Errno 111] Connection refused"),
        httpx.ConnectTimeout("timed out"),
        httpx.PoolTimeout("timed out"),
        httpx.InvalidURL("no host"),
    ],
)
def test_without_a_connection_nothing_was_sent(error: Exception) -> None:
    assert not no_answer(error, url=URL, sent=True).sent


@pytest.mark.parametrize("sent", [True, False])
def test_otherwise_it_was_if_it_had_been_begun(sent: bool) -> None:
    for error in (httpx.ReadError("cut"), httpx.WriteError("cut"), httpx.ReadTimeout("late")):
        assert no_answer(error, url=URL, sent=sent).sent is sent


def test_a_limit_of_the_library_is_called_what_ours_is() -> None:
    reason = no_answer(httpx.ConnectTimeout("timed out"), url=URL, sent=False)
    assert (str(reason), reason.said) == (NOT_IN_TIME, "timed out")


def test_the_systems_number_is_left_out_but_can_be_had() -> None:
    reason = no_answer(httpx.ReadError("[Errno 104] Connection reset by peer"), url=URL, sent=True)
    assert str(reason) == "Connection reset by peer"
    assert reason.said == "[Errno 104] Connection reset by peer"


def test_an_error_without_words_has_its_name() -> None:
    reason = no_answer(httpx.ReadError(""), url=URL, sent=True)
    assert (str(reason), reason.said) == ("ReadError", "ReadError")


def test_what_is_no_http_may_be_tls_and_the_other_way_round() -> None:
    garbage = httpx.RemoteProtocolError("illegal status line")
    assert "etcds://" in no_answer(garbage, url=URL, sent=True).advice
    assert no_answer(garbage, url=URL.replace("http:", "https:"), sent=True).advice == ""
    below = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
    error = httpx.ConnectError("EOF")
    error.__cause__ = below
    assert "is etcd://" in no_answer(error, url=URL.replace("http:", "https:"), sent=True).advice


def test_control_characters_of_others_reach_no_terminal() -> None:
    reason = no_answer(httpx.RemoteProtocolError("\x1b[2J" + "x" * 500), url=URL, sent=True)
    assert str(reason).isprintable()
    assert len(str(reason)) <= 80


def test_an_answer_that_is_too_long_would_be_so_again() -> None:
    reason = too_long(10)
    assert reason.lasting
    assert str(reason) == "its answer is longer than 10 bytes"
