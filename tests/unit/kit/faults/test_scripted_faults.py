"""Each fault of the lease proxy of the tests is what it says, and hits what it is meant for."""

from __future__ import annotations

import http.client
import time

import httpx
import pytest

from tests.kit.faults import hostile
from tests.kit.faults.fixture import StartFaultProxy
from tests.kit.faults.process import FaultProxy
from tests.kit.faults.raw_client import RawClient
from tests.kit.support import eventually

ACQUIRE_T = "/lease/acquire?type=T"


def client(proxy: FaultProxy) -> RawClient:
    return RawClient(proxy.url)


def is_refused(proxy: FaultProxy) -> bool:
    try:
        client(proxy).close()
    except ConnectionRefusedError:
        return True
    return False


# ---- connections


def test_refuse_closes_the_listening_socket_for_a_while(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("refuse seconds=0.3 nth=1",))
    with client(proxy) as connection, pytest.raises(ConnectionResetError):
        connection.acquire()
    eventually(lambda: not is_refused(proxy))
    with client(proxy) as connection:
        assert connection.acquire().names == ["T--00"]
    (refused,), (_, accepted) = proxy.history().of("refuse"), proxy.history().of("accept")
    assert accepted["at"] - refused["at"] >= 0.29


def test_refuse_until_told(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3")
    with client(proxy) as kept:
        eventually(lambda: proxy.state()["open_connections"] == 1)
        proxy.refuse()
        assert is_refused(proxy)
        # A connection that is there already stays.
        assert kept.acquire().names == ["T--00"]
        assert proxy.state()["listening"] is False
    proxy.accept()
    proxy.accept()
    with client(proxy) as connection:
        assert connection.acquire().names == ["T--01"]


def test_reset_connect_resets_before_anything_is_read(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("reset-connect connection=1,2",))
    for _ in range(2):
        with pytest.raises(ConnectionError), client(proxy) as connection:
            assert connection.socket.recv(1) == b"never"
    with client(proxy) as connection:
        assert connection.acquire().names == ["T--00"]
    assert len(proxy.history().of("request")) == 1


def test_reset_before_does_nothing_of_what_was_asked(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("reset-before nth=1",))
    with client(proxy) as connection, pytest.raises(ConnectionResetError):
        connection.acquire()
    assert proxy.leased == []


@pytest.mark.parametrize("path", ["acquire", "release"])
def test_reset_after_does_it_and_does_not_say_so(fault_proxy: StartFaultProxy, path: str) -> None:
    proxy = fault_proxy("T=3", faults=(f"reset-after path={path}",))
    with client(proxy) as connection:
        if path == "release":
            assert connection.acquire().names == ["T--00"]
        with pytest.raises(ConnectionResetError):
            connection.release("T--00") if path == "release" else connection.acquire()
    assert proxy.leased == ([] if path == "release" else ["T--00"])
    assert proxy.history().lost == {*proxy.leased}


def test_close_keepalive_answers_and_leaves_a_closed_connection(
    fault_proxy: StartFaultProxy,
) -> None:
    proxy = fault_proxy("T=3", faults=("close-keepalive nth=1",))
    with client(proxy) as connection:
        got = connection.acquire()
        assert got.names == ["T--00"]
        assert "connection" not in got.headers
        assert connection.read_to_end() == b""
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            connection.acquire()
    assert proxy.leased == ["T--00"]


# ---- time


@pytest.mark.parametrize("fault", ["delay", "delay-after"])
def test_delay_answers_late(fault_proxy: StartFaultProxy, fault: str) -> None:
    proxy = fault_proxy("T=3", faults=(f"{fault} seconds=0.2",))
    with client(proxy) as connection:
        assert connection.acquire().names == ["T--00"]
    history = proxy.history()
    (request,), (grant,), (answer,) = map(history.of, ("request", "grant", "answer"))
    late = grant["at"] - request["at"] if fault == "delay" else answer["at"] - grant["at"]
    assert late >= 0.19


def test_hang_never_answers(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("hang nth=1", "hang-after nth=2"))
    for leased in ([], ["T--00"]):
        with client(proxy) as connection:
            connection.start_acquire()
            (hanging,) = eventually(lambda: proxy.hanging)
            assert proxy.leased == leased == hanging["got"]
            connection.reset()
        eventually(lambda: not proxy.hanging)
    assert proxy.history().lost == {"T--00"}


def test_drip_sends_byte_after_byte(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("drip seconds=0.001",))
    with client(proxy) as connection:
        began = time.monotonic()
        assert connection.acquire().names == ["T--00"]
        assert time.monotonic() - began > 0.1  # There are more than 100 bytes.
        assert connection.release("T--00").status == 204


def test_a_client_may_go_while_the_answer_drips(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("drip",))
    with client(proxy) as connection:
        connection.start_acquire()
        assert connection.socket.recv(1) == b"H"
        connection.reset()
    eventually(lambda: not proxy.state()["open_connections"])
    assert proxy.history().lost == {"T--00"}


# ---- answers


@pytest.mark.parametrize(
    ("rule", "target", "status", "text"),
    [
        ("500", ACQUIRE_T, 500, "scripted 500\n"),
        ('500 text="no disk space"', ACQUIRE_T, 500, "no disk space\n"),
        ("503", "/lease/release", 503, "scripted 503\n"),
        ("404", ACQUIRE_T, 404, 'Failed to acquire lease "T": resource type not found\n'),
    ],
)
def test_a_status_is_answered_instead_of_doing_anything(
    fault_proxy: StartFaultProxy, rule: str, target: str, status: int, text: str
) -> None:
    proxy = fault_proxy("T=3", faults=(rule,))
    with client(proxy) as connection:
        got = connection.ask("POST", target, '{"names":[]}')
    assert (got.status, got.text) == (status, text)
    assert proxy.leased == []


def test_garbage_is_not_http(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("garbage",))
    with client(proxy) as connection, pytest.raises(http.client.BadStatusLine):
        connection.acquire()
    with httpx.Client(trust_env=False) as client_, pytest.raises(httpx.RemoteProtocolError):
        client_.post(proxy.url + ACQUIRE_T)
    assert proxy.leased == ["T--00", "T--01"]


def test_not_json_is_200_with_something_else(fault_proxy: StartFaultProxy) -> None:
    page = "<html><body>Please log in.</body></html>"
    proxy = fault_proxy("T=4")
    with client(proxy) as connection:
        for text, expected in ((None, page), ('["T--00"]', '["T--00"]'), ("{", "{"), ("", "")):
            proxy.faults({"fault": "not-json", "text": text})
            got = connection.acquire()
            assert (got.status, got.text) == (200, expected)
    assert proxy.history().lost == {"T--00", "T--01", "T--02", "T--03"}


def test_half_ends_in_the_middle_of_the_body(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("half nth=1", "half nth=2 bytes=20", "half path=release"))
    with client(proxy) as connection, pytest.raises(http.client.IncompleteRead) as caught:
        connection.acquire()
    assert caught.value.partial == b'{"names":'
    with client(proxy) as connection:
        connection.start_acquire()
        assert connection.read_to_end() == b"HTTP/1.1 200 OK\r\nCon"
    with client(proxy) as connection:
        connection.send("POST", "/lease/release", '{"names":["T--00"]}')
        assert b"\r\n\r\n" not in connection.read_to_end()
    assert proxy.leased == ["T--01"]


def test_hostile_names_come_with_200(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=2")
    with httpx.Client(base_url=proxy.url, trust_env=False) as http_client:
        for variant in hostile.VARIANTS:
            proxy.faults(f"names-hostile path=acquire variant={variant}")
            response = http_client.post("/lease/acquire?type=T&count=2")
            assert response.status_code == 200
            assert response.text != '{"names":["T--00","T--01"]}', variant
            assert len(proxy.leased) == (2 if hostile.needs_grant(variant) else 0), variant
            assert proxy.history().lost == {*proxy.leased}
            http_client.post("/lease/release", json={"names": proxy.leased})


def test_the_hostile_names_are_those_that_clients_fall_for() -> None:
    def names(variant: str) -> str:
        return hostile.answer(variant, ["a", "b"]).body.decode()

    assert names("traversal") == '{"names":["../x"]}'
    assert names("newline") == '{"names":["T--00\\nT--01"]}'
    assert names("long") == '{"names":["' + "x" * 300 + '"]}'
    assert names("empty") == '{"names":[]}'
    assert names("fewer") == '{"names":["a"]}'
    assert names("duplicate") == '{"names":["a","b","a"]}'
    assert names("more") == '{"names":["a","b","somebody-elses"]}'
