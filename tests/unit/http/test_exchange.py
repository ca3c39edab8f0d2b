"""How long a request may take, how long its answer may be, and what giving up means."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.errors import Interrupted
from leasectl.http import exchange
from leasectl.http.exchange import Client, Stream
from leasectl.http.messages import Answer, Call, Incoming
from leasectl.http.no_answer import NoAnswer, NotInTime
from leasectl.http.settings import Settings
from leasectl.http.tls import Trust, client_context, client_files
from leasectl.http.transport import Sending
from leasectl.http.worker import Worker
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt
from tests.kit.certificates import Certificates, make_certificates
from tests.kit.descriptors import leaving_open
from tests.kit.etcd.server import reserve_port
from tests.kit.peculiar import (
    HEAD,
    SLOW,
    Conversation,
    Deaf,
    Peculiar,
    StartPeculiar,
    answer,
    drip_head,
    pour,
    say_nothing,
)
from tests.kit.support import ManualClock, clock_from
from tests.kit.waits import PATIENCE_SECONDS, eventually, wait_set

SECONDS = 0.2
# Of a machine that has other things to do, too.
LATE_SECONDS = PATIENCE_SECONDS
LONGEST_BYTES = 5 << 20


def new_client(
    *,
    clock: Clock | None = None,
    keeps_connections: bool = True,
    trust: Trust | None = None,
    connect_seconds: float = 1.0,
) -> Client:
    return Client(
        clock=clock or Clock(),
        trust=trust,
        keeps_connections=keeps_connections,
        connect_seconds=connect_seconds,
        longest_bytes=LONGEST_BYTES,
    )


@pytest.fixture
def client() -> Iterator[Client]:
    with new_client() as client:
        yield client


def call_of(server: Peculiar, *, only_now: bool = False) -> Call:
    return Call(f"{server.endpoint}/path", b'{"a": 1}', only_now=only_now)


def ask(client: Client, server: Peculiar, seconds: float | None = LATE_SECONDS) -> Answer:
    return client.ask(call_of(server), seconds=seconds)


def worker() -> threading.Thread:
    """The thread that makes the requests of the client that was used last."""
    return [each for each in threading.enumerate() if each.name == "leasectl-worker"][-1]


class TestInTime:
    @pytest.mark.parametrize("conversation", SLOW)
    def test_a_server_that_drips_is_given_up(
        self, conversation: Conversation, serve: StartPeculiar
    ) -> None:
        server = serve(conversation)
        since = time.monotonic()
        with (
            new_client(clock=clock_from(server.asked)) as client,
            pytest.raises(NotInTime, match="no answer in time") as raised,
        ):
            ask(client, server, SECONDS)
        assert time.monotonic() - since >= SECONDS
        assert raised.value.sent
        wait_set(server.ended)

    @pytest.mark.parametrize("conversation", SLOW)
    def test_so_is_one_that_answered_before_on_the_same_connection(
        self, conversation: Conversation, serve: StartPeculiar, client: Client
    ) -> None:
        to_do = [answer, answer, conversation]
        server = serve(lambda connection: to_do.pop(0)(connection))
        for _ in range(2):
            assert ask(client, server)[:2] == (200, "{}")
        with pytest.raises(NoAnswer):
            ask(client, server, SECONDS)
        assert server.connections == 1
        wait_set(server.ended)

    def test_a_name_that_is_looked_up_for_ever_is_given_up(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = threading.Event()
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_args, **_options: found.wait(PATIENCE_SECONDS) and []
        )
        with pytest.raises(NotInTime) as raised:
            client.ask(Call("http://etcd:2379/"), seconds=SECONDS)
        assert not raised.value.sent
        found.set()

    def test_nothing_is_sent_on_a_connection_that_came_too_late(
        self, serve: StartPeculiar, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heard: list[socket.socket] = []
        server = serve(heard.append)
        look_up, found = socket.getaddrinfo, threading.Event()

        def look_up_late(*args: object, **options: object) -> object:
            wait_set(found)
            return look_up(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "getaddrinfo", look_up_late)
        with pytest.raises(NoAnswer):
            ask(client, server, SECONDS)
        found.set()
        wait_set(server.ended)
        assert heard == []

    def test_what_was_sent_before_the_connection_was_cut_counts_as_sent(
        self, serve: StartPeculiar, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However late: it may be carried out."""
        cut, found, sent = Sending.cut, threading.Event(), threading.Event()
        look_up = socket.getaddrinfo

        def look_up_late(*args: Any, **options: Any) -> Any:
            wait_set(found)
            return look_up(*args, **options)

        def hear(_connection: socket.socket) -> None:
            sent.set()

        def cut_late(sending: Sending) -> None:
            found.set()
            wait_set(sent)
            cut(sending)

        monkeypatch.setattr(socket, "getaddrinfo", look_up_late)
        monkeypatch.setattr(Sending, "cut", cut_late)
        with pytest.raises(NotInTime) as raised:
            ask(client, serve(hear), 0.1)
        assert raised.value.sent

    def test_an_answer_that_does_not_end_is_given_up_before_memory_is_full(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        server = serve(pour)
        with pytest.raises(NoAnswer, match="longer than 5242880 bytes") as raised:
            ask(client, server, 30)
        assert raised.value.lasting
        wait_set(server.ended)

    def test_who_is_not_there_has_been_sent_nothing(self, client: Client) -> None:
        port = reserve_port()
        with pytest.raises(NoAnswer, match=r"^Connection refused$") as raised:
            client.ask(Call(f"http://127.0.0.1:{port}/"), seconds=5)
        assert not raised.value.sent
        assert raised.value.said == "Connection refused"

    def test_who_hangs_up_may_have_done_it(self, serve: StartPeculiar, client: Client) -> None:
        server = serve(lambda connection: connection.shutdown(socket.SHUT_RDWR))
        with pytest.raises(NoAnswer) as raised:
            ask(client, server)
        assert raised.value.sent


class TestConnections:
    @pytest.mark.parametrize(("keeps", "made"), [(True, 1), (False, 3)])
    def test_they_are_kept_if_that_was_said(
        self, serve: StartPeculiar, keeps: bool, made: int
    ) -> None:
        server = serve(answer)
        with new_client(keeps_connections=keeps) as client:
            for _ in range(3):
                ask(client, server)
        assert server.connections == made

    def test_one_that_the_server_has_closed_meanwhile_is_not_used_again(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        def answer_once(connection: socket.socket) -> None:
            answer(connection)
            connection.shutdown(socket.SHUT_RDWR)

        server = serve(answer_once)
        assert ask(client, server).text == "{}"
        wait_set(server.ended)
        assert ask(client, server).text == "{}"
        assert server.connections == 2

    def test_a_server_that_vanished_is_noticed_after_a_minute(
        self, serve: StartPeculiar, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[socket.socket] = []
        connect = socket.create_connection

        def note(*args: Any, **options: Any) -> socket.socket:
            made.append(connect(*args, **options))
            return made[-1]

        monkeypatch.setattr(socket, "create_connection", note)
        ask(client, serve(answer))
        (connection,) = made
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        # Without it each request of two packets would wait for 40 ms.
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        wanted = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
        assert {
            option: connection.getsockopt(socket.IPPROTO_TCP, option) for option in wanted
        } == wanted

    @pytest.mark.parametrize("only_now", [False, True])
    def test_what_must_not_be_done_late_is_not_sent_to_who_does_not_listen(
        self, only_now: bool
    ) -> None:
        with Deaf() as deaf:
            call = Call(f"http://{deaf.address}/", b'{"a": 1}', only_now=only_now)
            with new_client(clock=clock_from(deaf.told)) as client, pytest.raises(NoAnswer):
                client.ask(call, seconds=SECONDS)
            said = deaf.all_told()
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith(b"POST / HTTP/1.1")
        assert body == (b"" if only_now else b'{"a": 1}')

    def test_to_trust_nobody_is_not_to_trust_everybody(self, client: Client) -> None:
        with pytest.raises(ValueError, match="whom to trust"):
            client.ask(Call("https://127.0.0.1:1/"), seconds=5)


class TestKeptConnections:
    """Whoever asks sends and reads himself there, as far as that takes no time."""

    @pytest.fixture
    def threads(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """What was left to a thread."""
        left: list[Any] = []
        assign = Worker.assign

        def note(worker: Worker, work: Callable[[], object]) -> None:
            left.append(work)
            assign(worker, work)

        monkeypatch.setattr(Worker, "assign", note)
        return left

    def test_all_but_the_first_request_need_no_thread(
        self, serve: StartPeculiar, client: Client, threads: list[Any]
    ) -> None:
        server = serve(answer)
        for _ in range(3):
            assert ask(client, server)[:2] == (200, "{}")
        assert (len(threads), server.connections) == (1, 1)

    def test_an_answer_that_comes_in_pieces_is_read_to_its_end(
        self, serve: StartPeculiar, client: Client, threads: list[Any]
    ) -> None:
        long = b"x" * (1 << 20)
        answers = [b"{}", long, b"{}", long]
        to_do = list(answers)

        def say(connection: socket.socket) -> None:
            said = to_do.pop(0)
            length = f"Content-Length: {len(said)}\r\n\r\n"
            connection.sendall(HEAD + length.encode() + said)

        server = serve(say)
        assert [ask(client, server).text.encode() for _ in answers] == answers
        assert (len(threads), server.connections) == (3, 1)

    def test_a_request_that_the_server_takes_its_time_to_take_is_sent_to_its_end(
        self, serve: StartPeculiar, client: Client, threads: list[Any]
    ) -> None:
        server = serve(answer)
        ask(client, server)
        # More than there is room for between the two.
        assert client.ask(Call(server.endpoint, b"x" * (32 << 20)), seconds=30).text == "{}"
        assert (len(threads), server.connections) == (2, 1)

    def test_an_answer_that_is_too_long_is_none(self, serve: StartPeculiar) -> None:
        server = serve(answer)
        with Client(clock=Clock(), connect_seconds=1.0, longest_bytes=2) as client:
            ask(client, server)
            client._longest_bytes = 1
            with pytest.raises(NoAnswer, match="longer than 1 bytes"):
                ask(client, server)


class TestThreads:
    def test_signals_are_left_to_whoever_blocks_them_later_to_read_them(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        ask(client, serve(answer))
        status = Path(f"/proc/self/task/{worker().native_id}/status").read_text()
        blocked = int(re.findall(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)[0], 16)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            assert blocked & 1 << (signum - 1)
        assert blocked & 1 << (signal.SIGCHLD - 1)

    def test_a_client_that_nobody_has_any_more_leaves_none(self, serve: StartPeculiar) -> None:
        server = serve(answer)
        before = threading.active_count()
        client = new_client()
        ask(client, server)
        thread = worker()
        client.close()
        del client
        eventually(lambda: not thread.is_alive())
        eventually(lambda: threading.active_count() <= before)

    def test_requests_leave_no_descriptor_open(self, serve: StartPeculiar, client: Client) -> None:
        to_do: list[Conversation] = [answer, answer, say_nothing]
        server = serve(lambda connection: to_do.pop(0)(connection))
        ask(client, server)
        with leaving_open(0):
            ask(client, server)
            with pytest.raises(NotInTime):
                ask(client, server, 0.1)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that wait for what comes late for as long as a busy machine needs to send it."""
    monkeypatch.setattr(exchange, "LINGER_SECONDS", LATE_SECONDS)


class Grants:
    """A server that grants something and says so late: when the client's half is closed."""

    def __init__(self, delay_seconds: float | None) -> None:
        self.asked = threading.Event()
        self._delay_seconds = delay_seconds

    def __call__(self, connection: socket.socket) -> None:
        self.asked.set()
        # By what TCP says: OpenSSL writes nothing more once it has read such an end, Go does.
        ended = socket.socket.recv(connection, 1, socket.MSG_PEEK) == b""
        if ended and self._delay_seconds is not None:
            time.sleep(self._delay_seconds)
            answer(connection)


class TestGivingUp:
    """With something to be told that comes late."""

    def give_up(self, server: Peculiar) -> list[Answer | None]:
        heard: list[Answer | None] = []
        clock = clock_from(server.asked)
        with new_client(clock=clock, keeps_connections=False) as client, pytest.raises(NotInTime):
            client.ask(call_of(server), seconds=SECONDS, late=heard.append)
        return heard

    @pytest.mark.usefixtures("patience")
    def test_what_was_granted_meanwhile_still_arrives(self, serve: StartPeculiar) -> None:
        (heard,) = self.give_up(serve(Grants(0.05)))
        assert heard is not None
        assert heard[:2] == (200, "{}")

    def test_that_it_did_not_arrive_is_told(self, serve: StartPeculiar) -> None:
        assert self.give_up(serve(Grants(None))) == [None]
        assert self.give_up(serve(say_nothing)) == [None]

    def test_it_is_not_waited_for_long(self, serve: StartPeculiar) -> None:
        assert self.give_up(serve(drip_head)) == [None]

    def test_nothing_is_told_of_what_was_not_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = threading.Event()
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_args, **_options: found.wait(PATIENCE_SECONDS) and []
        )
        heard: list[Answer | None] = []
        with new_client() as client, pytest.raises(NotInTime):
            client.ask(Call("http://nowhere/"), seconds=0.1, late=heard.append)
        found.set()
        assert heard == []

    @pytest.mark.usefixtures("patience")
    def test_an_interrupt_ends_the_wait_and_nothing_is_lost(self, serve: StartPeculiar) -> None:
        grants = Grants(0.05)
        server = serve(grants)
        read_fd, write_fd = os.pipe()

        def interrupt() -> None:
            raise Interrupted(15)

        def interrupt_soon() -> None:
            grants.asked.wait(LATE_SECONDS)
            os.write(write_fd, b"!")

        threading.Thread(target=interrupt_soon, daemon=True).start()
        heard: list[Answer | None] = []
        with new_client() as client, pytest.raises(Interrupted):
            client.ask(
                call_of(server),
                seconds=None,
                interrupts=[Interrupt(read_fd, select.POLLIN, interrupt)],
                late=heard.append,
            )
        assert [each and each.text for each in heard] == ["{}"]
        os.close(read_fd)
        os.close(write_fd)

    @pytest.mark.usefixtures("patience")
    def test_the_client_can_be_used_by_whom_it_is_told(self, serve: StartPeculiar) -> None:
        granting, releasing = serve(Grants(0.05)), serve(answer)
        released: list[str] = []
        clock = clock_from(granting.asked)
        with new_client(clock=clock, keeps_connections=False) as client, pytest.raises(NotInTime):
            client.ask(
                call_of(granting),
                seconds=0.1,
                late=lambda _: released.append(ask(client, releasing).text),
            )
        assert released == ["{}"]

    def test_ticks_come_when_they_were_asked_for(
        self, serve: StartPeculiar, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        time, at = ManualClock(elapsed=0.0), list[float]()

        def sleep(*, until: float | None, **_: object) -> set[int]:
            assert until is not None
            time.advance(until - time.clock.elapsed())
            return set()

        def tick(now: float) -> float | None:
            at.append(now)
            return now + 2.0

        monkeypatch.setattr(exchange, "sleep", sleep)
        with new_client(clock=time.clock) as client, pytest.raises(NotInTime):
            client.ask(call_of(serve(say_nothing)), seconds=5.0, tick=tick)
        assert at == [0.0, 2.0, 4.0]


def say_lines(connection: socket.socket) -> None:
    """Two lines in three pieces, and then nothing."""
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for piece in (b"fir", b"st\nsec", b"ond\n"):
        connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        time.sleep(0.01)
    connection.recv(1)


def cut_soon(cut: Callable[[], None], after: threading.Event) -> None:
    def run() -> None:
        wait_set(after)
        time.sleep(0.05)
        cut()

    threading.Thread(target=run, daemon=True).start()


class TestTls:
    @pytest.fixture(scope="class")
    def certificates(self, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
        return make_certificates(tmp_path_factory.mktemp("certificates"))

    @pytest.fixture
    def context(self, certificates: Certificates) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificates.server)
        return context

    @pytest.fixture
    def trusting(self, certificates: Certificates) -> Iterator[Client]:
        settings = Settings(ca_file=certificates.ca.file)
        trust = Trust(partial(client_context, settings), client_files(settings))
        with new_client(keeps_connections=False, trust=trust) as client:
            yield client

    def test_a_server_is_asked_whose_certificate_is_trusted(
        self, serve: StartPeculiar, context: ssl.SSLContext, trusting: Client
    ) -> None:
        assert ask(trusting, serve(answer, context)).text == "{}"

    def test_one_that_is_not_trusted_is_sent_nothing(
        self, serve: StartPeculiar, context: ssl.SSLContext, certificates: Certificates
    ) -> None:
        heard: list[socket.socket] = []
        with (
            new_client(trust=Trust(ssl.create_default_context, ())) as client,
            pytest.raises(NoAnswer, match="isn't trusted") as raised,
        ):
            ask(client, serve(heard.append, context))
        assert not raised.value.sent
        assert heard == []

    def test_one_that_says_nothing_when_it_is_greeted_is_given_up(self) -> None:
        trust = Trust(ssl.create_default_context, ())
        with (
            Deaf() as deaf,
            new_client(clock=clock_from(deaf.told), trust=trust, connect_seconds=60) as client,
        ):
            with pytest.raises(NotInTime) as raised:
                client.ask(Call(f"https://{deaf.address}/"), seconds=SECONDS)
            greeting = deaf.all_told()
        assert greeting[:1] == b"\x16"
        assert not raised.value.sent

    def test_a_stream_is_cut(
        self, serve: StartPeculiar, context: ssl.SSLContext, trusting: Client
    ) -> None:
        server = serve(say_lines, context)
        stream = trusting.stream(call_of(server))
        with pytest.raises(NoAnswer), stream as lines:
            assert next(lines) == "first"
            stream.cut()
            list(lines)
        wait_set(server.ended)


class TestStreams:
    def test_lines_come_as_they_are_said_until_it_is_cut(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        stream = client.stream(call_of(serve(say_lines)))
        with stream as lines:
            assert (stream.status, stream.headers["content-type"]) == (200, "application/json")
            assert [next(lines), next(lines)] == ["first", "second"]
            stream.cut()
            with pytest.raises(NoAnswer):  # where it is read, not only where it is left
                next(lines)

    def test_one_that_has_not_begun_to_be_answered_can_be_cut(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        asked = threading.Event()

        def hang(connection: socket.socket) -> None:
            asked.set()
            connection.recv(1)

        server = serve(hang)
        stream = client.stream(call_of(server))
        cut_soon(stream.cut, asked)
        with pytest.raises(NoAnswer), stream:
            pass
        wait_set(server.ended)

    def test_one_that_was_cut_before_it_began_does_not_begin(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        heard: list[socket.socket] = []
        stream = client.stream(call_of(serve(heard.append)))
        stream.cut()
        with pytest.raises(NoAnswer) as raised, stream:
            pass
        assert not raised.value.sent
        assert heard == []

    def test_it_has_a_connection_of_its_own(self, serve: StartPeculiar, client: Client) -> None:
        to_do = [answer, say_lines, answer, answer]
        server = serve(lambda connection: to_do.pop(0)(connection))
        ask(client, server)
        with client.stream(call_of(server)) as lines:
            next(lines)
        ask(client, server)
        assert server.connections == 3
        ask(client, server)
        assert server.connections == 3

    def test_a_line_that_does_not_end_is_given_up_before_memory_is_full(
        self, serve: StartPeculiar, client: Client
    ) -> None:
        with (
            pytest.raises(NoAnswer, match="longer than"),
            client.stream(call_of(serve(pour))) as lines,
        ):
            next(lines)

    def test_a_long_one_takes_as_long_as_it_is(self) -> None:
        def took(pieces: int) -> float:
            stream = Stream(Scripted(pieces), LONGEST_BYTES)  # type: ignore[arg-type]
            since = time.thread_time()
            with stream as lines:
                assert [len(line) for line in lines] == [512 * pieces, 1]
            return time.thread_time() - since

        short = min(took(500) for _ in range(3))
        assert min(took(10_000) for _ in range(3)) < 150 * short  # copied each time: 400


class Scripted:
    """A request whose answer is a line in so many pieces, and another."""

    def __init__(self, pieces: int) -> None:
        self._pieces = [b"x" * 512] * pieces

    @contextlib.contextmanager
    def open(self) -> Iterator[Incoming]:
        yield Incoming(200, {}, iter([*self._pieces, b"\ny"]))
