"""A waiter's ear on etcd: a watch and a keep-alive, both on one member, in threads of their own.

A watch on a member that hangs or has lost its quorum stays silent and says nothing of it. So it
is believed only as long as the same member answers keep-alives; when one isn't answered in time,
both move on to the next member. The watch goes on there from the revision where it was.

Threads, because who waits sleeps in poll(2), for hours, and may be busy elsewhere: the ticket's
life must not depend on it. What they hear is only a hint; whoever is woken reads for himself.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import httpx

from leasectl.clock import Clock
from leasectl.engines.etcd_gateway import Gateway, LeaseGone, NoAnswer
from leasectl.engines.etcd_requests import encode, end_of
from leasectl.engines.wake import ProcessWatch
from leasectl.errors import LeaseError
from leasectl.liveness import Process
from leasectl.model import Ticket

_CONNECT_SECONDS = 1.0
_LONGEST_ANSWER_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 1.0


class Watched(NamedTuple):
    """What to listen for.

    Args:
        key: The key, or the prefix when it ends in "/".
        puts: Whether somebody's writing it is of interest.
        deletes: Whether its end is.
    """

    key: str
    puts: bool = False
    deletes: bool = False


class Target(NamedTuple):
    """What a waiter waits for, as seen at a revision: only what came later is news."""

    watched: tuple[Watched, ...]
    revision: int


class EtcdWaiter:
    """One waiter's ear.

    Args:
        gateway: The cluster.
        lease: The etcd lease that the ticket is going to be attached to.
        ttl_seconds: Of that lease; it is kept alive at a third of it.
        clock: Where times come from.

    Attributes:
        lease: As given.
        ttl_seconds: As given.
        sent_at: When the last successful keep-alive was sent, or the request that made the lease,
            on the elapsed clock: deadlines count from it.
        target: What to listen for; set by who looks, before `listen`.
    """

    def __init__(self, gateway: Gateway, lease: int, ttl_seconds: int, clock: Clock) -> None:
        self.lease = lease
        self.ttl_seconds = ttl_seconds
        self.sent_at = clock.elapsed()
        self.target = Target((), 0)
        self._gateway = gateway
        self._clock = clock
        self._processes = ProcessWatch()
        self._read_fd = self._write_fd = -1
        self._closed = threading.Event()
        self._changed = threading.Condition()
        # Under the lock of _changed:
        self._watched: tuple[Watched, ...] = ()
        self._heard_revision = 0
        self._turn = 0  # one up whenever the stream has to be made anew
        self._member = gateway.current
        self._socket: socket.socket | None = None

    @property
    def is_overdue(self) -> bool:
        """Whether the ticket must have gone by now, for want of keep-alives."""
        return self._clock.elapsed() - self.sent_at >= self.ttl_seconds

    def open(self) -> None:
        """Nothing is missed before: a watch starts at the revision of the look before it."""

    def listen(
        self, *, predecessor: Ticket | None, processes: Sequence[Process]
    ) -> tuple[frozenset[int], bool]:
        self._processes.update(processes)
        with self._changed:
            if self._watched == self.target.watched:
                self._heard_revision = max(self._heard_revision, self.target.revision)
            else:
                self._watched, self._heard_revision = self.target
                self._begin_anew()
        self._start()
        return frozenset((self._read_fd, *self._processes.fds())), self._processes.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._read_fd in woken:
            os.read(self._read_fd, 4096)
        ended = not woken.isdisjoint(self._processes.fds())
        self._processes.heard(woken)
        return ended

    def close(self) -> None:
        self._processes.close()
        with self._changed:
            if self._closed.is_set():
                return
            # The threads end by themselves: one may be waiting for a member that hangs.
            self._closed.set()
            self._begin_anew()
            if self._read_fd >= 0:
                os.close(self._read_fd)
                os.close(self._write_fd)

    def _start(self) -> None:
        if self._read_fd >= 0:
            return
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for work in (self._keep_alive, self._watch):
            threading.Thread(target=work, name=f"leasectl{work.__name__}", daemon=True).start()

    def _wake(self) -> None:
        with self._changed, contextlib.suppress(BlockingIOError):  # it is full of wake-ups
            if not self._closed.is_set():  # or the number may be another file's by now
                os.write(self._write_fd, b"!")

    def _begin_anew(self) -> None:
        """Have the watch's stream made anew; with the lock held."""
        self._turn += 1
        self._changed.notify_all()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Of the plain connection below: a TLS layer would first want to say goodbye.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _leave(self, member: int) -> None:
        """Move watch and keep-alive on to the next member, unless they have left that one."""
        with self._changed:
            if self._member == member:
                self._member = (member + 1) % len(self._gateway.endpoints)
                self._begin_anew()

    # The keep-alive's thread

    def _keep_alive(self) -> None:
        patience = min(self.ttl_seconds / 6, _LONGEST_ANSWER_SECONDS)
        with self._gateway.client() as client:
            pause = self.ttl_seconds / 3 - (self._clock.elapsed() - self.sent_at)
            while not self._closed.wait(max(0.0, pause)):
                pause = self.ttl_seconds / 3 if self._beat(client, patience) else patience / 10

    def _beat(self, client: httpx.Client, patience: float) -> bool:
        member, sent_at = self._member, self._clock.elapsed()
        try:
            alive = self._gateway.keep_alive_at(client, member, self.lease, patience)
        except NoAnswer:
            self._leave(member)
            if self.is_overdue:
                self._wake()  # who waits finds that out, and says so
            return False
        except (LeaseError, LeaseGone):
            self._wake()  # who waits asks for himself, and gets the same answer
            return True
        if alive:
            self.sent_at = sent_at
        else:
            self._wake()
        return True

    # The watch's thread

    def _watch(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        with self._gateway.client() as client:
            while not self._closed.is_set():
                with self._changed:
                    turn, member = self._turn, self._member
                    body = _body(self._watched, self._heard_revision + 1)
                try:
                    self._follow(client, turn, member, body)
                    pause = _FIRST_PAUSE_SECONDS
                except _Compacted:
                    self._look_again(turn)
                except (httpx.HTTPError, httpx.StreamError, NoAnswer):
                    with self._changed:
                        if self._turn == turn:
                            self._leave_soon(turn, pause)
                            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _leave_soon(self, turn: int, pause: float) -> None:
        """After a failure of the stream itself; with the lock held."""
        self._changed.wait_for(lambda: self._turn != turn, pause)
        if self._turn == turn:
            self._member = (self._member + 1) % len(self._gateway.endpoints)
            self._turn += 1

    def _look_again(self, turn: int) -> None:
        """What came since is lost. Have who waits read anew, and go on from there."""
        self._wake()
        with self._changed:
            if self._turn == turn:
                self._watched = ()
                self._changed.wait_for(lambda: self._turn != turn)

    def _follow(self, client: httpx.Client, turn: int, member: int, body: str) -> None:
        def note_socket(event: str, info: Mapping[str, Any]) -> None:
            if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
                with self._changed:
                    self._socket = info["return_value"].get_extra_info("socket")
                    if self._turn != turn:
                        raise NoAnswer("left")

        stream = client.stream(
            "POST",
            self._gateway.endpoints[member] + "/v3/watch",
            content=body,
            headers={"Connection": "close"},
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            extensions={"trace": note_socket},
        )
        try:
            with stream as response:
                for line in response.iter_lines():
                    if self._turn != turn:
                        return
                    self._hear(line)
            raise NoAnswer("the watch has ended")
        finally:
            with self._changed:
                self._socket = None

    def _hear(self, line: str) -> None:
        try:
            result = json.loads(line)["result"]
            if int(result.get("compact_revision", 0)):
                raise _Compacted
            if result.get("canceled"):
                raise NoAnswer("the watch was cancelled")
            revisions = [int(event["kv"]["mod_revision"]) for event in result.get("events", ())]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NoAnswer(f"no event: {error!r}") from error
        with self._changed:
            # Of one transaction each watch of the stream tells by itself; once will do.
            is_news = max(revisions, default=0) > self._heard_revision
            self._heard_revision = max(self._heard_revision, *revisions, 0)
        if is_news:
            self._wake()


class _Compacted(Exception):
    """The revision to go on from is no longer there."""


def _body(watched: Sequence[Watched], start_revision: int) -> str:
    """One stream for several watches: the gateway reads one request after the other."""
    return "".join(
        json.dumps({"create_request": _create(each, start_revision)}) for each in watched
    )


def _create(watched: Watched, start_revision: int) -> dict[str, Any]:
    unwanted = ("NOPUT",) * (not watched.puts) + ("NODELETE",) * (not watched.deletes)
    request = {"key": encode(watched.key), "start_revision": str(start_revision)}
    if watched.key.endswith("/"):
        request["range_end"] = encode(end_of(watched.key))
    return {**request, "filters": list(unwanted)}
