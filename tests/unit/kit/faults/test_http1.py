"""The lease proxy of the tests speaks HTTP/1.1 as Go's server does."""

from __future__ import annotations

import httpx
import pytest

from tests.kit.faults.fixture import StartFaultProxy
from tests.kit.faults.process import FaultProxy
from tests.kit.faults.raw_client import RawClient


@pytest.fixture
def proxy(fault_proxy: StartFaultProxy) -> FaultProxy:
    return fault_proxy("T=3")


def test_a_connection_is_kept_alive_unless_the_client_wants_otherwise(proxy: FaultProxy) -> None:
    with httpx.Client(base_url=proxy.url, trust_env=False) as http:
        for _ in range(3):
            assert http.post("/lease/acquire", params={"type": "T"}).status_code == 200
    with RawClient(proxy.url) as connection:
        got = connection.ask("POST", "/lease/release", '{"names":[]}', Connection="close")
        assert got.headers["connection"] == "close"
        assert connection.read_to_end() == b""
    assert proxy.state()["connections"] == 2


def test_bodies_may_be_chunked_or_wait_to_be_asked_for(proxy: FaultProxy) -> None:
    chunked = '8\r\n{"names"\r\n4;x=y\r\n:[]}\r\n0\r\n\r\n'
    with RawClient(proxy.url) as connection:
        got = connection.ask("POST", "/lease/release", chunked, Transfer_Encoding="chunked")
        assert got.status == 204
        connection.socket.sendall(
            b"POST /lease/release HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert connection.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.socket.sendall(b"{}")
        assert connection.read_answer().status == 204


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x00\r\n\r\n",
        b"POST /lease/acquire?type=T HTTP/1.1\r\n\r\n",
        b"POST /lease/acquire?type=T HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{}",
    ],
)
def test_what_is_no_request_is_a_bad_request(proxy: FaultProxy, sent: bytes) -> None:
    with RawClient(proxy.url) as connection:
        connection.socket.sendall(sent)
        connection.half_close()
        assert connection.read_to_end().startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert proxy.leased == []


def test_the_log_has_what_a_request_came_with(proxy: FaultProxy) -> None:
    with RawClient(proxy.url) as connection:
        target = f"{proxy.url}/lease/acquire?type=T"
        connection.ask("POST", target, Idempotency_Key="k", Authorization="Bearer secret")
    (request,) = proxy.history().of("request")
    assert (request["target"], request["path"]) == (target, "/lease/acquire")
    assert (request["idempotency_key"], request["authorization"]) == ("k", True)
    assert "secret" not in proxy.log_path.read_text()
