"""What errors become."""

from __future__ import annotations

import socket
import ssl

import pytest

from leasectl.http.http1 import BadUrl, ProtocolError
from leasectl.http.no_answer import NOT_IN_TIME, no_answer, too_long

URL = "http://etcd:2379/v3/kv/range"


@pytest.mark.parametrize("sent", [True, False])
def test_it_was_sent_if_it_had_been_begun(sent: bool) -> None:
    for error in (ConnectionResetError(104, "cut"), BrokenPipeError(32, "cut"), socket.timeout()):
        assert no_answer(error, url=URL, sent=sent).sent is sent


def test_a_limit_of_a_connection_is_called_what_ours_is() -> None:
    reason = no_answer(socket.timeout("timed out"), url=URL, sent=False)
    assert (str(reason), reason.said) == (NOT_IN_TIME, "timed out")


def test_what_can_be_no_url_is_none_the_next_time_either() -> None:
    assert no_answer(BadUrl("no host"), url=URL, sent=False).lasting


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(104, "Connection reset by peer"),
        socket.gaierror(-2, "Name or service not known"),
    ],
)
def test_the_systems_number_is_left_out(error: OSError) -> None:
    reason = no_answer(error, url=URL, sent=True)
    assert str(reason) == reason.said == error.strerror


def test_an_error_without_words_has_its_name() -> None:
    reason = no_answer(OSError(), url=URL, sent=True)
    assert (str(reason), reason.said) == ("OSError", "OSError")


def test_what_is_no_http_may_be_tls_and_the_other_way_round() -> None:
    garbage = ProtocolError("illegal status line")
    assert "etcds://" in no_answer(garbage, url=URL, sent=True).advice
    assert no_answer(garbage, url=URL.replace("http:", "https:"), sent=True).advice == ""
    error = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
    assert "is etcd://" in no_answer(error, url=URL.replace("http:", "https:"), sent=True).advice


@pytest.mark.parametrize(("code", "why"), [(9, "is not yet valid"), (10, "has expired")])
def test_a_certificate_of_another_time_may_be_the_fault_of_our_clock(code: int, why: str) -> None:
    error = ssl.SSLCertVerificationError(1, f"certificate verify failed: certificate {why}")
    error.verify_code, error.verify_message = code, f"certificate {why}"
    reason = no_answer(error, url="https://api", sent=False)
    assert str(reason) == f"its certificate isn't trusted (certificate {why})"
    assert (reason.distrust, reason.lasting) == ("time", True)
    assert "the clock of this machine" in reason.advice


def test_control_characters_of_others_reach_no_terminal() -> None:
    reason = no_answer(ProtocolError("\x1b[2J" + "x" * 500), url=URL, sent=True)
    assert str(reason).isprintable()
    assert len(str(reason)) <= 80


def test_an_answer_that_is_too_long_would_be_so_again() -> None:
    reason = too_long(10)
    assert reason.lasting
    assert str(reason) == "its answer is longer than 10 bytes"
