"""How long a request to a member may take, and how long its answer may be."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Callable

import pytest

from leasectl.engines.etcd.gateway import exchange as etcd_exchange
from leasectl.engines.etcd.gateway.exchange import NOT_IN_TIME, Line, NoAnswer
from leasectl.engines.etcd.gateway.failures import Failures
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.errors import BackendUnreachable
from leasectl.system.clock import Clock
from tests.kit.support import eventually

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SECONDS = 0.4
# Of a machine that has other things to do, too.
LATE_SECONDS = 5.0

Conversation = Callable[[socket.socket], None]


class Peculiar:
    """A server that does to each connection what it is told, once a request has come."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.connections = 0
        self.ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            reader = client.makefile("rb")
            while _read_request(reader):
                self._conversation(client)
        self.ended.set()

    def close(self) -> None:
        self._listener.close()


def _read_request(reader: BinaryIO) -> bool:
    length = 0
    for line in iter(reader.readline, b"\r\n"):
        if not line:
            return False
        name, _, value = line.lower().partition(b":")
        length = int(value) if name == b"content-length" else length
    return len(reader.read(length)) == length


@pytest.fixture
def serve() -> Iterator[Callable[[Conversation], Peculiar]]:
    servers: list[Peculiar] = []

    def start(conversation: Conversation) -> Peculiar:
        servers.append(Peculiar(conversation))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def line() -> Iterator[Line]:
    with Line() as line:
        yield line


def drip(client: socket.socket, data: bytes) -> None:
    """Send byte after byte, so that no read ever waits long."""
    for n in range(len(data)):
        client.sendall(data[n : n + 1])
        time.sleep(0.05)


def drip_head(client: socket.socket) -> None:
    drip(client, HEAD + b"X-Padding: " + b"x" * 1000)


def drip_body(client: socket.socket) -> None:
    client.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
    drip(client, b"x" * 1000)


def drip_chunks(client: socket.socket) -> None:
    client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    drip(client, b"1\r\nx\r\n" * 200)


def drip_interim_answers(client: socket.socket) -> None:
    for _ in range(200):
        client.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.05)


def say_nothing(_client: socket.socket) -> None:
    pass


def answer(client: socket.socket) -> None:
    client.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")


def pour(client: socket.socket) -> None:
    client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        client.sendall(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")


SLOW = [drip_head, drip_body, drip_chunks, drip_interim_answers, say_nothing]


def worker() -> threading.Thread:
    """The thread that makes the requests of the line that was used last."""
    return [each for each in threading.enumerate() if type(each).__name__ == "_Worker"][-1]


@pytest.mark.parametrize("conversation", SLOW)
def test_a_member_that_drips_is_given_up_in_time(
    conversation: Conversation, serve: Callable[[Conversation], Peculiar], line: Line
) -> None:
    server = serve(conversation)
    since = time.monotonic()
    with pytest.raises(NoAnswer, match="no answer in time") as raised:
        line.ask(server.endpoint, "/", {}, headers={}, seconds=SECONDS)
    assert SECONDS <= time.monotonic() - since < SECONDS + LATE_SECONDS
    assert raised.value.sent
    assert server.ended.wait(5), "the connection was left to itself"


@pytest.mark.parametrize("conversation", SLOW)
def test_so_is_one_that_answered_before_on_the_same_connection(
    conversation: Conversation, serve: Callable[[Conversation], Peculiar], line: Line
) -> None:
    to_do = [answer, answer, conversation]
    server = serve(lambda client: to_do.pop(0)(client))
    for _ in range(2):
        assert line.ask(server.endpoint, "/", {}, headers={}, seconds=5) == (200, "{}")
    since = time.monotonic()
    with pytest.raises(NoAnswer):
        line.ask(server.endpoint, "/", {}, headers={}, seconds=SECONDS)
    assert time.monotonic() - since < SECONDS + LATE_SECONDS
    assert server.connections == 1
    assert server.ended.wait(5), "the connection was left to itself"


@pytest.mark.parametrize("only_now", [False, True])
def test_what_must_not_be_done_late_is_not_sent_to_who_does_not_listen(only_now: bool) -> None:
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as stopped:  # whose kernel goes on taking what comes
        endpoint = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        line = Line()
        with pytest.raises(NoAnswer):
            line.ask(endpoint, "/", {"a": 1}, headers={}, seconds=SECONDS, only_now=only_now)
        connection, _ = stopped.accept()
        with connection:
            head, _, body = b"".join(iter(lambda: connection.recv(4096), b"")).partition(
                b"\r\n\r\n"
            )
    assert head.startswith(b"POST / HTTP/1.1")
    assert body == (b"" if only_now else b'{"a": 1}')
    line.close()


def test_a_line_goes_on_after_it_was_cut(
    serve: Callable[[Conversation], Peculiar], line: Line
) -> None:
    to_do = [drip_head, answer, answer]
    server = serve(lambda client: to_do.pop(0)(client))
    with pytest.raises(NoAnswer):
        line.ask(server.endpoint, "/", {}, headers={}, seconds=SECONDS)
    for _ in range(2):
        assert line.ask(server.endpoint, "/", {}, headers={}, seconds=5).text == "{}"
    assert server.connections == 2


def test_a_name_that_is_looked_up_for_ever_is_given_up_in_time(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found.wait(30) and [])
    since = time.monotonic()
    with pytest.raises(NoAnswer, match="no answer in time") as raised:
        line.ask("http://etcd:2379", "/", {}, headers={}, seconds=SECONDS)
    assert time.monotonic() - since < SECONDS + LATE_SECONDS
    assert not raised.value.sent
    found.set()


def test_nothing_is_sent_on_a_connection_that_came_too_late(
    serve: Callable[[Conversation], Peculiar], line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[socket.socket] = []
    server = serve(heard.append)
    look_up, found = socket.getaddrinfo, threading.Event()

    def look_up_late(*args: object, **options: object) -> object:
        found.wait(30)
        return look_up(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", look_up_late)
    with pytest.raises(NoAnswer):
        line.ask(server.endpoint, "/", {}, headers={}, seconds=SECONDS)
    found.set()
    assert server.ended.wait(5)
    assert heard == []


def test_an_answer_that_does_not_end_is_given_up_before_memory_is_full(
    serve: Callable[[Conversation], Peculiar], line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_exchange, "LONGEST_ANSWER_BYTES", 5 << 20)
    server = serve(pour)
    with pytest.raises(NoAnswer, match="longer than 5242880 bytes") as raised:
        line.ask(server.endpoint, "/", {}, headers={}, seconds=30)
    assert raised.value.lasting
    assert server.ended.wait(5)


def test_signals_are_left_to_whoever_blocks_them_later_to_read_them(
    serve: Callable[[Conversation], Peculiar], line: Line
) -> None:
    line.ask(serve(answer).endpoint, "/", {}, headers={}, seconds=5)
    status = Path(f"/proc/self/task/{worker().native_id}/status").read_text()
    blocked = int(re.findall(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)[0], 16)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
        assert blocked & 1 << (signum - 1)


def test_a_line_that_nobody_has_any_more_leaves_no_thread(
    serve: Callable[[Conversation], Peculiar],
) -> None:
    server = serve(answer)
    before = threading.active_count()
    line = Line()
    line.ask(server.endpoint, "/", {}, headers={}, seconds=5)
    thread = worker()
    line.close()
    del line
    eventually(lambda: not thread.is_alive())
    eventually(lambda: threading.active_count() <= before)


def test_a_deadline_holds_whatever_the_members_do(
    serve: Callable[[Conversation], Peculiar],
) -> None:
    endpoints = [serve(conversation).endpoint for conversation in SLOW]
    gateway = Gateway(endpoints, clock=Clock(), deadline_seconds=1.0, attempt_seconds=0.15)
    since = time.monotonic()
    with pytest.raises(BackendUnreachable, match="no answer from etcd within 1s") as raised:
        gateway.read()
    assert 1.0 <= time.monotonic() - since < 1.0 + LATE_SECONDS
    assert all(endpoint in str(raised.value) for endpoint in endpoints)
    gateway.close()


def test_a_deadline_is_named_as_people_write_it(serve: Callable[[Conversation], Peculiar]) -> None:
    gateway = Gateway([serve(SLOW[0]).endpoint], clock=Clock(), deadline_seconds=1 / 3)
    with pytest.raises(BackendUnreachable, match=r"no answer from etcd within 0\.33s: "):
        gateway.read()
    gateway.close()


def test_members_that_drip_do_not_keep_a_request_from_one_that_answers(
    serve: Callable[[Conversation], Peculiar],
) -> None:
    body = b'{"header":{"revision":"7"},"succeeded":true}'

    def answer_well(client: socket.socket) -> None:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    endpoints = [serve(each).endpoint for each in (drip_head, drip_body, answer_well)]
    gateway = Gateway(endpoints, clock=Clock(), deadline_seconds=30, attempt_seconds=0.2)
    since = time.monotonic()
    outcome = gateway.read()
    assert outcome.revision == 7
    assert outcome.repeated
    assert time.monotonic() - since < 0.4 + LATE_SECONDS
    gateway.close()


class TestSilence:
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
        assert failures.text(2.0).endswith("no leader; is it there, and does it have a quorum?")

    def test_who_had_no_time_to_ask_says_so(self) -> None:
        text = "no answer from etcd within 0s; is it there, and does it have a quorum?"
        assert Failures().text(0) == text
