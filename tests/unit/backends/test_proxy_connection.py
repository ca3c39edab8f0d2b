"""Requests to a lease proxy as a server gets them, what it is told of us, and what its refusals
become; and which addresses are one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leasectl.backends.kinds import check_url
from leasectl.backends.proxy.backend import ProxyBackend
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.status import STATUS, ask_status, capacity_of
from leasectl.backends.unanswered import Loss, NotSent, Refused, TimeOver
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    InvalidRequest,
    LeaseError,
    NotFound,
    NotSupported,
)
from leasectl.http.messages import Answer
from leasectl.http.settings import Settings
from leasectl.model import Claimant, Request
from leasectl.system.clock import Clock
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.recorded import NoJournal

CLOCK = Clock()


class Got(NamedTuple):
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str


class Server(ThreadingHTTPServer):
    """Answers all alike.

    Attributes:
        got: The requests so far.
        status, text: Of each answer.
        waits: It answers nobody before this is set.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[Got] = []
        self.status = 200
        self.text = "{}"
        self.waits: threading.Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        self.server.got.append(Got(self.command, self.path, dict(self.headers.items()), body))
        if self.server.waits is not None:
            self.server.waits.wait(30)
        text = self.server.text.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = _answer

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    return str(file)


def connect(server: Server, settings: Settings | None = None, **more: Any) -> Connection:
    return Connection(f"{server.url}/", settings or Settings(), clock=CLOCK, **more)


def ask(connection: Connection, until: float | None = None) -> Answer:
    return connection.ask(
        "/lease/acquire",
        params={"type": "T", "count": "1"},
        headers={"Idempotency-Key": "k"},
        interrupts=(),
        until=until,
        tick=lambda now: None,
        late=lambda answer: None,
    )


class TestARequest:
    def test_for_a_lease_has_its_query_and_its_key(self, server: Server) -> None:
        server.text = '{"names": ["T--00"]}'
        assert ask(connect(server)).text == server.text
        (got,) = server.got
        assert (got.method, got.path, got.body) == ("POST", "/lease/acquire?type=T&count=1", "")
        assert got.headers["Idempotency-Key"] == "k"
        assert "Authorization" not in got.headers

    def test_that_tells_something_has_it_as_json(self, server: Server) -> None:
        body = {"names": ["T--00"]}
        connect(server).tell("/lease/release", body, headers={"X": "y"}, seconds=10)
        (got,) = server.got
        assert (got.method, got.path, got.body) == ("POST", "/lease/release", '{"names":["T--00"]}')
        assert (got.headers["Content-Type"], got.headers["X"]) == ("application/json", "y")

    def test_says_with_a_token_who_asks(self, server: Server, token_file: str) -> None:
        connection = connect(server, Settings(token_file=token_file))
        ask(connection)
        connection.look("/status", seconds=10)
        connection.tell("/lease/release", {}, headers={}, seconds=10)
        assert [got.headers["Authorization"] for got in server.got] == ["Bearer s3cret"] * 3
        assert server.got[0].headers["Idempotency-Key"] == "k"

    def test_has_a_connection_of_its_own(self, server: Server) -> None:
        """Nobody can tell of one that was kept whether a request on it was read."""
        connection = connect(server)
        for _ in range(2):
            connection.look("/status", seconds=10)
        assert {got.headers.get("Connection") for got in server.got} == {"close"}


class TestARefusal:
    @pytest.mark.parametrize("status", [401, 403])
    def test_without_a_token_says_where_one_would_be(self, server: Server, status: int) -> None:
        server.status, server.text = status, "who are you?"
        connection = connect(server)
        refusal = rf"{status}: who are you\?; name a file with .* token in LEASECTL_TOKEN_FILE"
        with pytest.raises(AccessRefused, match=refusal):
            ask(connection)
        with pytest.raises(AccessRefused, match=refusal):
            connection.look("/status", seconds=10)
        with pytest.raises(AccessRefused, match=refusal):
            connection.tell("/lease/release", {}, headers={}, seconds=10)

    def test_of_a_token_names_its_file(self, server: Server, token_file: str) -> None:
        server.status = 401
        with pytest.raises(AccessRefused, match=rf"is the token in {token_file} \(LEASECTL_TOKEN"):
            ask(connect(server, Settings(token_file=token_file)))

    @pytest.mark.parametrize("status", [400, 402, 404, 500])
    def test_of_anything_else_is_an_answer(self, server: Server, status: int) -> None:
        server.status = status
        assert ask(connect(server)).status == status


class TestNoAnswer:
    def test_where_nobody_listens_nothing_was_sent(self, server: Server) -> None:
        connection = Connection("http://127.0.0.1:1", Settings(), clock=CLOCK)
        with pytest.raises(NotSent):
            ask(connection)
        with pytest.raises(NotSent):
            connection.look("/status", seconds=10)

    def test_in_time_is_no_loss_to_who_has_given_up_waiting(self, server: Server) -> None:
        server.waits = threading.Event()
        with pytest.raises(TimeOver):
            ask(connect(server), until=CLOCK.elapsed() + 0.2)
        with pytest.raises(Loss, match=f"no answer from {server.url} in time"):
            connect(server).look("/status", seconds=0.2)
        server.waits.set()

    def test_is_one_that_is_longer_than_any_can_be(self, server: Server) -> None:
        longest = 1 << 20
        server.text = "x" * longest
        assert len(ask(connect(server)).text) == longest
        server.text += "x"
        with pytest.raises(BackendUnreachable):
            ask(connect(server))
        assert len(ask(connect(server, longest_bytes=longest + 1)).text) == longest + 1


class TestAnAddress:
    @pytest.mark.parametrize(
        "url",
        ["http://h", "https://h:8080/", "http://h:65535/a/b", "http://[::1]:80", "http://h_1.x-y"],
    )
    def test_is_one(self, url: str) -> None:
        check_url(url)

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("http://me:s3cret@h", "can't hold a user"),
            ("http://h?q", "unknown backend"),
            ("http://h h", "unknown backend"),
            ("http://", "unknown backend"),
            ("http://h:0", "has port 0"),
            ("http://h:65536", "has port 65536"),
        ],
    )
    def test_is_none(self, url: str, said: str) -> None:
        with pytest.raises(InvalidRequest, match=said) as refused:
            check_url(url)
        assert "s3cret" not in str(refused.value)


def opened(url: str, desk: Desk) -> ProxyBackend:
    service = desk.as_caller(desk.caller, url)
    backend = service.backend_at(url, service.settings)
    assert isinstance(backend, ProxyBackend)
    return backend


class TestWhatItCanNot:
    @pytest.mark.parametrize(
        ("request_", "wait", "option"),
        [
            (Request("T", name="T--00"), None, "--name"),
            (Request("T", where=(("a", "b"),)), None, "--where"),  # type: ignore[arg-type]
            (Request("T", priority=1), None, "--priority"),
            (Request("T", priority=-1), None, "--priority"),
            (Request("T", ttl_seconds=60.0), None, "--ttl"),
            (Request("T"), 0.0, "-w 0"),
        ],
    )
    def test_is_refused_by_its_option(
        self, request_: Request, wait: float | None, option: str
    ) -> None:
        with pytest.raises(NotSupported, match=f"{option} is not supported by the lease proxy"):
            ProxyBackend.check_request(request_, wait)

    @pytest.mark.parametrize(
        ("request_", "wait"), [(Request("T"), 0.0), (Request("T", name="T--00"), None)]
    )
    def test_names_boskos_where_that_can(self, request_: Request, wait: float | None) -> None:
        with pytest.raises(NotSupported, match=r"leasectl\+http:// and boskos\+http:// can do it"):
            ProxyBackend.check_request(request_, wait)

    def test_is_to_renew_and_to_hand_on(self, desk: Desk) -> None:
        backend = opened("http://127.0.0.1:1", desk)
        with pytest.raises(NotSupported, match="renews leases itself"):
            backend.renew("T-1/1", ["T--00"])
        claimant: Any = Claimant("T-1/1", "me", Request("T"))
        journal: Any = NoJournal()
        with pytest.raises(NotSupported, match="serve leases of http"):
            backend.turn(claimant, journal, None)  # type: ignore[arg-type]


class TestWhatItTellsOfPools:
    def test_is_asked_for_all_or_for_one(self, server: Server) -> None:
        server.text = '{"pools": []}'
        for pool_type in (None, "a b"):
            told = ask_status(server.url, Settings(), pool_type=pool_type, clock=CLOCK)
            assert told == {"pools": []}
        assert [got.path for got in server.got] == [STATUS, f"{STATUS}?type=a+b"]

    @pytest.mark.parametrize(
        ("status", "text", "error", "said"),
        [
            (404, '{"error": "no pool \\u001b"}', NotFound, r"no pool \\x1b"),
            (404, "not found", NotSupported, "manages its pools"),
            (404, '{"error": 1}', NotSupported, "manages its pools"),
            (405, '{"error": "no"}', NotSupported, "manages its pools"),
            (500, "down", Refused, "500: down"),
            (200, "[", Refused, "(no pools)"),
        ],
    )
    def test_or_why_not(
        self, server: Server, status: int, text: str, error: type[LeaseError], said: str
    ) -> None:
        server.status, server.text = status, text
        with pytest.raises(error, match=said):
            ask_status(server.url, Settings(), pool_type=None, clock=CLOCK)

    @pytest.mark.parametrize(
        ("status", "text", "capacity"),
        [
            (200, '{"pools": [{"capacity": 3}]}', 3),
            (200, '{"pools": [{"capacity": 3, "states": {}}]}', None),
            (200, '{"pools": []}', None),
            (200, '{"pools": [{}]}', None),
            (200, "[]", None),
            (404, "", None),
            (401, "", None),
        ],
    )
    def test_is_how_many_there_are_where_that_is_sure(
        self, server: Server, status: int, text: str, capacity: int | None
    ) -> None:
        server.status, server.text = status, text
        assert capacity_of(server.url, connect(server), "T") == capacity
        assert [got.path for got in server.got] == [f"{STATUS}?type=T"]
