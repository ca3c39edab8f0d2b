"""Wait for leases on behalf of clients, and give them back.

A grant goes through three stages, each of them on record. Until its answer is about to be written
only this process knows of it, and its death undoes it. From then on its client may know, so it
outlives the server: it is *unconfirmed*. With the answer delivered it is a lease like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from leasectl.backends.contract import Patience
from leasectl.engines.refusals import too_few
from leasectl.errors import BackendUnreachable, Cancelled, InvalidRequest, LeaseError, NotFound
from leasectl.leases.acquire import turn
from leasectl.leases.release import arm, finish
from leasectl.leases.service import Service
from leasectl.model import Handle, Process, whole
from leasectl.server.give_backs import (
    NotReleased,
    covers,
    key_in,
    release_all_of,
    release_one,
    token_in,
)
from leasectl.server.kept_places import NOTED_AFTER_SECONDS, KeptPlaces
from leasectl.server.metrics import KeeperWatch, LossWatch, Notices
from leasectl.server.sleeps import sleep_through_async
from leasectl.server.threads import ServiceThreads, most_waits
from leasectl.server.tokens import Token
from leasectl.server.waits import AskAgain, ClientWait, Wanted, WithdrawnKeys
from leasectl.state.handles import note_answer
from leasectl.state.rows import is_of_extension
from leasectl.system.process import is_dead, this_process
from leasectl.system.wakeup import Wakeup

Result = TypeVar("Result")

# What is granted to a key and can't be delivered is given back if nobody asks for it again for so
# long; a client that lives asks within seconds.
CONFIRM_SECONDS = 600.0
# A request with a key keeps its queue position for so long after its connection has ended: a
# reverse proxy may have run out of patience, and the client repeats the request.
KEEP_POSITION_SECONDS = 3.0
# So long after the end of a round: the client asks again at once, on a machine that may be busy.
RETURN_SECONDS = 10.0
_TRY_AGAIN_SECONDS = 1.0


class Rules(NamedTuple):
    """What holds for clients of the lease proxy's protocol.

    Args:
        acquire_seconds: How long a request may wait.
        lease_limit_seconds: A lease ends so long after its grant; None for no limit.
        strict_release: A release without a key only gives back what was granted without one.
    """

    acquire_seconds: float
    lease_limit_seconds: float | None = None
    strict_release: bool = False


class ServedLeases:
    """The leases of all clients; everything happens in one thread, but for what is left to others.

    Args:
        service: On the state directory and backend that are served; warns the server's operator.
        rules: For clients of the lease proxy's protocol.
        guard: The process whose death releases what is granted here; None for none.

    Attributes:
        service: As given.
        rules: As given.
        notices: What the server's operator is told by.
        is_closing: The server is about to end.
    """

    def __init__(self, service: Service, *, rules: Rules, guard: Process | None = None) -> None:
        kind, self._clock = service.kind, service.clock
        self.service = service
        self.rules = rules
        self._guard = guard
        self.notices = Notices(service.context.warn, clock=self._clock)
        self._keeper = KeeperWatch(service, self.notices)
        # Another server is asked in threads; one without pools of ours has a thread wait for each
        # request, and takes leases away.
        self._threads = None
        if kind.remote:
            most = 0 if kind.has_pools else most_waits()
            self._threads = ServiceThreads(service.for_another_thread, most_waits=most)
        self._waiting_threads = None if kind.has_pools else self._threads
        self._losses = None if kind.has_pools else LossWatch(service, self.notices)
        self._waits: dict[str, ClientWait] = {}
        self._withdrawn = WithdrawnKeys(clock=self._clock)
        self._places = KeptPlaces(service.state, clock=self._clock)
        self.is_closing = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the keeper and losses in the event loop."""
        self._keeper.look()
        if self._losses is not None:
            self._losses.open()
        yield
        self._keeper.close()
        if self._losses is not None:
            self._losses.close()

    async def do(self, step: Callable[[Service], Result]) -> Result:
        """Run a step on the service, in a thread if the service is on another server."""
        if self._threads is None:
            return step(self.service)
        return await self._threads.run(step)

    # ---- acquire

    async def get(self, wanted: Wanted, *, gone: asyncio.Future[None], in_all: int = 1) -> Handle:
        """Get leases for a client, or find those that its key was granted before.

        The grant is unconfirmed from the return of this on; `answered` says what became of it.

        Args:
            wanted: What it wants.
            gone: Done when the client no longer waits.
            in_all: How many it will ask for, one by one, this being the first.

        Raises:
            AskAgain: A round is over.
            Cancelled: The client went away, the server ends, or the request was withdrawn.
            InvalidRequest: The pool could never give so many.
            LeaseError: As `Service.acquire`.
        """
        handle = await self._granted_before(wanted)
        if handle is None:
            await self._check_capacity(wanted.request.type, in_all)
            handle = await self._wait(wanted, gone)
        try:
            with self.service.state.transaction():
                current = self.service.handles.current(handle.id, handle.acquisition)
                if current is not None and current.waiter is None and not current.unconfirmed:
                    return handle  # somebody was told: it is theirs, whoever asks late
                if not note_answer(self.service.state, handle, confirmed=False):
                    raise Cancelled("the lease was released before the answer was sent")
        except Cancelled:
            raise
        except LeaseError:
            self._give_back_unanswered(handle)
            raise
        self._keeper.look()
        return handle

    def _give_back_unanswered(self, handle: Handle) -> None:
        """Give back a grant that can't be delivered, as soon as that can be recorded."""
        try:
            current = self.service.handles.current(handle.id, handle.acquisition)
            if current is not None and current.waiter == this_process():  # nobody has asked again
                self._give_back_soon(current, 0.0)
        except LeaseError:
            loop = asyncio.get_running_loop()
            loop.call_later(_TRY_AGAIN_SECONDS, self._give_back_unanswered, handle)

    async def _check_capacity(self, pool_type: str, in_all: int) -> None:
        if in_all > 1 and self._waiting_threads is None:
            (pool,) = await self.do(lambda service: service.pools.pools(pool_type))
            if pool.capacity < in_all:
                raise too_few(pool_type, pool.capacity, in_all)

    async def _granted_before(self, wanted: Wanted) -> Handle | None:
        """The grant that a key has, if it has one that counts."""
        while True:
            wait = self._waits.get(wanted.handle_id)
            if wait is not None and not wait.is_over:
                return None
            if wait is not None:
                await asyncio.wait((wait.task,))
                continue
            handle = self.service.handles.load(wanted.handle_id)
            if handle is None:
                return None
            if not handle.served:
                raise InvalidRequest("another holder has used this Idempotency-Key")
            if handle.state != "released" and not self._is_left_over(handle):
                if handle.state != "held":
                    raise LeaseError("another server waits with the same Idempotency-Key")
                if handle.leases:
                    wanted.check_same(handle.request, handle.holder_identity)
                    return handle
            # Also what a backend didn't answer, and may have granted.
            await self.do(partial(finish, handle=handle, by="guard"))

    def _is_left_over(self, handle: Handle) -> bool:
        """Tell whether a server was killed before it could tell of it, or it is given back."""
        if is_dead(handle.waiter):
            return True
        return handle.release_at is not None and handle.release_at <= self._clock.elapsed()

    async def _wait(self, wanted: Wanted, gone: asyncio.Future[None]) -> Handle:
        key = wanted.key
        if self.is_closing:
            raise Cancelled("context canceled: the server is shutting down")
        if key is not None and self._withdrawn.covers(_of_token(token_in(wanted.request), key)):
            raise Cancelled("context canceled: its client has given this request up")
        wait = self._waits.get(wanted.handle_id)
        if wait is None:
            wait = self._start(wanted)
        wanted.check_same(wait.wanted.request, wait.wanted.holder_identity)
        wait.join()
        try:
            # What is free is had, before anybody looks whether the client is still there.
            await asyncio.sleep(0)
            await asyncio.wait(
                (wait.task, gone),
                timeout=wanted.round_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            if wait.leave():
                if key is None or self.is_closing:
                    wait.end()
                else:
                    keep = KEEP_POSITION_SECONDS if gone.done() else RETURN_SECONDS
                    wait.end_later(keep, self._end_unasked)
        if wait.is_over:
            await asyncio.wait((wait.task,))
        if not wait.task.done() and not gone.done():
            raise AskAgain("the request still waits")
        if not wait.task.done() or wait.task.cancelled():
            why = ": the server is shutting down" if self.is_closing else ""
            raise Cancelled(f"context canceled{why}")
        return wait.task.result()

    def _end_unasked(self, wait: ClientWait) -> None:
        """End a wait whose request wasn't repeated, and give back what it was granted meanwhile."""
        wait.end()
        task = wait.task
        if task.done() and not task.cancelled() and task.exception() is None:
            self._give_back_unanswered(task.result())

    def _start(self, wanted: Wanted) -> ClientWait:
        wait, handle_id, pool_type = ClientWait(wanted), wanted.handle_id, wanted.request.type
        acquisition, give_up = self._acquisition(wanted)
        noting: asyncio.TimerHandle | None = None

        async def acquire() -> Handle:
            nonlocal noting
            try:
                await self._places.wait_for_turn(handle_id, pool_type)
            except asyncio.CancelledError:
                acquisition.close()
                raise
            if wanted.key is not None:  # only now: the notes are in the order of places
                noting = asyncio.get_running_loop().call_later(
                    NOTED_AFTER_SECONDS, self._places.note, handle_id, pool_type
                )
            try:
                handle = await acquisition
            except Cancelled:
                if wait.is_over:
                    raise asyncio.CancelledError from None
                raise
            if wait.is_over:  # it came just when nobody wanted it any more
                self._give_back_unanswered(handle)
                raise asyncio.CancelledError
            return handle

        def forget(task: asyncio.Task[Handle]) -> None:
            del self._waits[handle_id]
            if not self.is_closing:
                if noting is not None:
                    noting.cancel()
                self._places.forget(handle_id)
            if not task.cancelled():
                task.exception()  # there may be nobody left who would ask for it

        wait.begin(acquire(), give_up)
        wait.task.add_done_callback(forget)
        self._waits[handle_id] = wait
        return wait

    def _acquisition(
        self, wanted: Wanted
    ) -> tuple[Coroutine[Any, Any, Handle], Callable[[], object] | None]:
        """What acquires, and what gives that up, if it isn't to be cancelled for that."""
        if self._waiting_threads is None:
            patience = Patience(
                wanted.wait_seconds,
                warn=partial(self.notices.tell, BackendUnreachable),
                waits_for_server=False,
            )
            steps = turn(
                self.service,
                wanted.request,
                handle_id=wanted.handle_id,
                guard=self._guard,
                patience=patience,
                holder_identity=wanted.holder_identity,
            )
            return sleep_through_async(steps, now=self._clock.elapsed), None
        given_up = Wakeup()
        acquisition = self._waiting_threads.acquire(
            wanted.request,
            handle_id=wanted.handle_id,
            guard=self._guard,
            patience=Patience(wanted.wait_seconds, warn=self.notices.tell_from_thread()),
            given_up=given_up,
        )
        return acquisition, given_up.set

    # ---- after the answer

    def answered(self, handle: Handle, delivered: bool) -> None:
        """Confirm a grant whose answer was delivered; else give it back.

        It goes back at once, or later if its client can ask for it again.
        """
        try:
            with self.service.state.transaction():
                current = self.service.handles.current(handle.id, handle.acquisition)
                if current is None or not current.unconfirmed:
                    return  # released meanwhile, or confirmed by another connection
                if delivered:
                    note_answer(self.service.state, current, confirmed=True)
                    return
            has_key = key_in(current.request) is not None or is_of_extension(current)
            if has_key or self.service.kind.remote:  # which may not answer now
                self._give_back_soon(current, CONFIRM_SECONDS if has_key else 0.0)
            else:
                finish(self.service, current)
        except LeaseError as error:
            self.notices.tell(handle.id, f"{handle.id} stays unconfirmed: {error}")
            loop = asyncio.get_running_loop()
            loop.call_later(_TRY_AGAIN_SECONDS, self.answered, handle, delivered)

    def _give_back_soon(self, handle: Handle, seconds: float) -> None:
        """Arm a delayed release; the keeper carries it out even if this process is killed."""
        arm(self.service, whole(handle), seconds, again=False)

    # ---- release

    async def release(self, names: Sequence[str], *, key: str | None) -> None:
        """Give names back, in order.

        Args:
            names: As they were granted by a server on this state directory.
            key: The client's `Idempotency-Key`: only what was granted with it is released.

        Raises:
            NotReleased: At the first that can't be released; those before it are.
        """
        released: list[str] = []
        for name in names:
            try:
                await self._release_one(name, key)
            except LeaseError as error:
                raise NotReleased(name, error, released) from error
            released.append(name)

    async def _release_one(self, name: str, key: str | None) -> None:
        strict = self.rules.strict_release
        try:
            await self.do(lambda service: release_one(service, name, key, strict=strict))
        except NotFound:
            if self._losses is None or not self._losses.tell_late(name):
                raise

    async def withdraw(self, key: str, token: Token) -> None:
        """Undo all that was asked for with a key, or one that begins with it, now and later.

        Args:
            key: As it was sent.
            token: What the client shows.

        Raises:
            LeaseError: Something couldn't be given back.
        """
        await self.end_waits(key, token)
        await self.do(lambda service: release_all_of(service, key, token.secret or None))

    async def end_waits(self, key: str, token: Token) -> None:
        """End what waits with a key of a token, or one that begins with it, now and later."""
        self._withdrawn.add(_of_token(token.name, key))
        waits = [
            each
            for each in self._waits.values()
            if each.wanted.key and covers(key, each.wanted.key)
            if token_in(each.wanted.request) == token.name
        ]
        for wait in waits:
            wait.end()
        if waits:
            await asyncio.wait([each.task for each in waits])

    # ---- the end

    def close(self) -> None:
        """End all waits; whatever has been granted stays as it is."""
        self.is_closing = True
        self._places.close()
        for wait in list(self._waits.values()):
            wait.end()

    def close_threads(self) -> None:
        """Let threads end that ask another server, after the event loop has ended."""
        if self._threads is not None:
            self._threads.close()


def _of_token(token: str, key: str) -> str:
    """A key among the withdrawn ones: that of another token's client is another."""
    return f"{token}:{key}"
