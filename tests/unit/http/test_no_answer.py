"""What errors become, and what httpx says of a request that goes through a proxy."""

from __future__ import annotations

import socket
import ssl

import pytest

from leasectl.http.exchange import Client
from leasectl.http.http1 import BadUrl, ProtocolError
from leasectl.http.messages import Call
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer, no_answer, too_long
from leasectl.http.settings import Settings
from leasectl.http.tls import trust_of
from leasectl.system.clock import Clock
from tests.kit.etcd.server import reserve_port
from tests.kit.peculiar import Conversation, Deaf, StartPeculiar, answer
from tests.kit.support import clock_from

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


def test_what_is_no_http_may_be_tls_and_the_other_way_round() -> None:
    garbage = ProtocolError("illegal status line")
    assert "etcds://" in no_answer(garbage, url=URL, sent=True).advice
    assert no_answer(garbage, url=URL.replace("http:", "https:"), sent=True).advice == ""
    error = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
    assert (
        "write etcd:// " in no_answer(error, url=URL.replace("http:", "https:"), sent=True).advice
    )


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


def through(proxy_url: str) -> Client:
    return Client(clock=Clock(), proxy_url=proxy_url, connect_seconds=1.0, longest_bytes=1 << 20)


def test_a_request_goes_through_the_proxy(serve: StartPeculiar) -> None:
    with through(serve(answer).endpoint) as client:
        assert client.ask(Call("http://nowhere.invalid/path"), seconds=20).text == "{}"


def test_without_a_proxy_nothing_was_sent() -> None:
    port = reserve_port()
    with through(f"http://127.0.0.1:{port}") as client, pytest.raises(NoAnswer) as raised:
        client.ask(Call("http://nowhere.invalid/"), seconds=20)
    assert (str(raised.value), raised.value.sent) == ("Connection refused", False)


@pytest.mark.parametrize("proxy_url", ["socks5://127.0.0.1:1", "ftp://127.0.0.1:1"])
def test_a_proxy_of_a_kind_that_nobody_knows_is_no_way_there(
    monkeypatch: pytest.MonkeyPatch, proxy_url: str
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("all_proxy", proxy_url)
    client = Client(
        clock=Clock(), heeds_environment=True, connect_seconds=1.0, longest_bytes=1 << 20
    )
    with (
        client,
        pytest.raises(
            NoAnswer, match="the proxy in http_proxy, https_proxy or all_proxy"
        ) as raised,
    ):
        client.ask(Call("http://nowhere.invalid/"), seconds=20)
    assert not raised.value.sent


def test_a_proxy_that_hangs_up_may_have_passed_it_on(serve: StartPeculiar) -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_RDWR)

    with through(serve(hang_up).endpoint) as client, pytest.raises(NoAnswer) as raised:
        client.ask(Call("http://nowhere.invalid/"), seconds=20)
    assert raised.value.sent
    assert "etcds://" in raised.value.advice


def _refuse(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")


def _hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def _answer_garbage(connection: socket.socket) -> None:
    connection.sendall(b"garbage\r\n\r\n")


@pytest.mark.parametrize(
    "conversation, said",
    [
        (_refuse, "its HTTP proxy refused CONNECT: 403 Forbidden"),
        (_hang_up, "Server disconnected without sending a response"),
        (_answer_garbage, "illegal status line"),
    ],
)
def test_request_is_not_sent_when_connect_fails(
    serve: StartPeculiar, conversation: Conversation, said: str
) -> None:
    client = Client(
        clock=Clock(),
        trust=trust_of(Settings()),
        proxy_url=serve(conversation).endpoint,
        connect_seconds=5.0,
        longest_bytes=1 << 20,
    )
    with client, pytest.raises(NoAnswer, match=said) as raised:
        client.ask(Call("https://nowhere.invalid/"), seconds=20)
    assert not raised.value.sent


@pytest.mark.parametrize("is_proxied", [False, True])
def test_what_a_request_says_is_the_same_either_way_and_each_of_it_once(is_proxied: bool) -> None:
    with Deaf() as deaf:
        url = f"http://{deaf.address}"
        client = Client(
            clock=clock_from(deaf.told),
            proxy_url=url if is_proxied else None,
            connect_seconds=1.0,
            longest_bytes=1 << 20,
        )
        call = Call(f"{url}/path", b"{}", {"Accept": "application/json"}, more_headers=[("A", "b")])
        with client, pytest.raises(NoAnswer):
            client.ask(call, seconds=0.4)
        said = deaf.all_told()
    head, _, body = said.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    assert body == b"{}"
    assert sorted(line.lower() for line in lines if not line.lower().startswith("host:")) == [
        "a: b",
        "accept-encoding: identity",
        "accept: application/json",
        "connection: keep-alive",
        "content-length: 2",
        "user-agent: leasectl",
    ]
