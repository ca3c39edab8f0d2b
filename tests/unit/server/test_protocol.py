"""Paths, methods, codes and texts: those of ci-operator's lease proxy."""

from __future__ import annotations

import pytest

from tests.kit.faults.process import StartFaultProxy
from tests.kit.faults.raw_client import Got
from tests.kit.serving import Serving, held

# What every server of this protocol answers alike, on a pool "P" of two free resources.
ALIKE = (
    ("POST", "/lease/acquire", ""),
    ("POST", "/lease/acquire?type=", ""),
    ("POST", "/lease/acquire?type=nope", ""),
    ("POST", "/lease/acquire?type=nope&count=2", ""),
    ("POST", "/lease/acquire?type=P&count=0", ""),
    ("POST", "/lease/acquire?type=P&count=x", ""),
    ("POST", "/lease/acquire?type=P&count=-1", ""),
    ("POST", "/lease/acquire?type=P&count=1.5", ""),
    ("POST", "/lease/acquire?type=P&count=%D9%A1", ""),
    ("GET", "/lease/acquire?type=P", ""),
    ("PUT", "/lease/acquire?type=P", ""),
    ("DELETE", "/lease/release", ""),
    ("GET", "/lease/release", ""),
    ("POST", "/", ""),
    ("POST", "/lease", ""),
    ("POST", "/lease/acquire/", ""),
    ("POST", "/lease/renew", ""),
    ("POST", "/lease/release", ""),
    ("POST", "/lease/release", "{"),
    ("POST", "/lease/release", "[]"),
    ("POST", "/lease/release", "null"),
    ("POST", "/lease/release", "{}"),
    ("POST", "/lease/release", '{"names":[]}'),
    ("POST", "/lease/release", '{"names":null}'),
    ("POST", "/lease/release", '{"names":"P--00"}'),
    ("POST", "/lease/release", '{"names":[1]}'),
    ("POST", "/lease/release", '{"names":""}'),
    ("POST", "/lease/release", '{"names":0}'),
    ("POST", "/lease/release", '{"names":false}'),
    ("POST", "/lease/release", '{"names":{}}'),
    ("POST", "/lease/release", '{"Names":"P--00"}'),
    ("POST", "/lease/release", '{"names":"P--00","NAMES":[]}'),
    ("POST", "/lease/release", '{"names":["P--00"]}'),
    ("POST", "/lease/release", '{"names":["nonsense"]}'),
    ("POST", "/lease/acquire?type=P&count=2", ""),
    ("POST", "/lease/release", '{"names":["P--00","nonsense","P--01"]}'),
    ("POST", "/lease/release", '{"names":["P--00"]}'),
    ("POST", "/lease/release", '{"names":["P--01"]}'),
)


def test_a_request_of_two_lengths_is_the_last_on_its_connection(shared: Serving, pool: str) -> None:
    # What follows may be part of it to a proxy in between.
    with shared.connect() as client:
        client.socket.sendall(
            f"POST /lease/acquire?type={pool}&count=1 HTTP/1.1\r\nHost: lease-proxy\r\n"
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            f"POST /lease/acquire?type={pool}&count=1 HTTP/1.1\r\nHost: lease-proxy\r\n"
            "Content-Length: 0\r\n\r\n".encode()
        )
        got = client.read_answer()
        assert (got.names, got.headers["connection"]) == ([f"{pool}--00"], "close")
        assert client.socket.recv(1) == b""
    assert held(shared.cli, pool) == [f"{pool}--00"]


def test_it_answers_as_the_lease_proxy_does(shared: Serving, fault_proxy: StartFaultProxy) -> None:
    shared.cli.pool("P")
    reference = fault_proxy("P=2")

    def ask(url: str) -> list[tuple[str, str, str, Got]]:
        answers = []
        for method, target, body in ALIKE:
            with type(shared.connect())(url) as client:
                got = client.ask(method, target, body)
            answers.append((method, target, body, got._replace(headers=_compared(got))))
        return answers

    assert ask(shared.url) == ask(reference.url)


def _compared(got: Got) -> dict[str, str]:
    return {
        name: value
        for name, value in got.headers.items()
        if name in ("content-type", "x-content-type-options")
    }


@pytest.mark.parametrize("origin", ["http://x", "HTTPS://user@x:8080"])
def test_a_target_may_be_a_whole_url(shared: Serving, pool: str, origin: str) -> None:
    with shared.connect() as client:
        target = f"{origin}/lease/acquire?type={pool}"
        client.socket.sendall(f"POST {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert client.read_answer().names == [f"{pool}--00"]
        client.socket.sendall(f"GET {origin} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert client.read_answer().status == 200
        client.release(f"{pool}--00")


def test_more_than_there_are_can_never_be_had(shared: Serving, pool: str) -> None:
    with shared.connect() as client:
        got = client.acquire(pool, 3)
        assert got.status == 400
        assert got.text.startswith(f'Failed to acquire lease "{pool}": pool "{pool}" has 2')
        assert client.acquire(pool, 10**18).status == 400
        assert client.acquire(pool, 10**30).status == 400


@pytest.mark.parametrize(
    "pool_type", ["..%2Fstate.db", "a%0Ab", "%00", "-T", "x" * 5000, "%FF", "T%20", "\N{SNOWMAN}"]
)
def test_what_can_be_no_type_is_an_unknown_one(shared: Serving, pool_type: str) -> None:
    with shared.connect() as client:
        client.socket.sendall(
            f"POST /lease/acquire?type={pool_type} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        got = client.read_answer()
    assert got.status == (400 if not pool_type.isascii() else 404)
    assert "\n" not in got.text.rstrip("\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"POST\r\n\r\n",
        b"POST /lease/release HTTP/1.1\r\n\r\n",
        b"POST /lease/release HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 17_000,
    ],
    ids=["tls", "no target", "no host", "no length", "endless head"],
)
def test_what_is_no_http_is_a_bad_request(shared: Serving, sent: bytes) -> None:
    with shared.connect() as client:
        # Of the endless one that by which it is too much comes by itself: what a server hasn't read
        # when it closes a connection resets it, and the answer is lost with that.
        for part in filter(None, (sent[:16_000], sent[16_000:])):
            client.socket.sendall(part)
        assert client.read_to_end().startswith(b"HTTP/1.1 400 ")


def test_a_body_that_is_cut_off_is_a_bad_request(shared: Serving) -> None:
    with shared.connect() as client:
        client.socket.sendall(
            b'POST /lease/release HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"names":'
        )
        client.half_close()
        assert client.read_answer()[:2] == (400, "unmarshal request body: unexpected EOF\n")


def test_head_is_not_answered_with_a_lease(shared: Serving, pool: str) -> None:
    with shared.connect() as client:
        client.send("HEAD", f"/lease/acquire?type={pool}")
        client.half_close()
        assert client.read_to_end().startswith(b"HTTP/1.1 405 ")
    assert held(shared.cli, pool) == []


@pytest.mark.parametrize("name", [r"\ud800", r"P--00\u0000", "../x", "x" * 300])
def test_what_can_be_no_name_is_none_that_is_leased(shared: Serving, name: str) -> None:
    with shared.connect() as client:
        got = client.ask("POST", "/lease/release", f'{{"names":["{name}"]}}')
    assert got.status == 500
    assert "no resource name" in got.text
    assert "unexpected" not in got.text


def test_what_is_nested_too_deeply_is_no_json(shared: Serving) -> None:
    with shared.connect() as client:
        got = client.ask("POST", "/lease/release", "[" * 100_000)
    assert (got.status, got.text) == (400, "unmarshal request body: invalid JSON\n")
