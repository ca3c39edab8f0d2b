"""What the server does with leases: waits for them on behalf of clients, and gives them back.

A grant goes through three stages, each of them on record. Until its answer is about to be written
only this process knows of it, and its death undoes it. From then on somebody may know, so it
outlives the server: it is *unconfirmed*. With the answer delivered it is a lease like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from leasectl.backends.contract import Patience
from leasectl.engines.refusals import too_few
from leasectl.errors import Cancelled, InvalidRequest, LeaseError, NotFound
from leasectl.leases.acquire import turn
from leasectl.leases.delay import arm
from leasectl.leases.release import finish, release
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget, Request, whole
from leasectl.server.grants import covers, key_in, served_id, served_request
from leasectl.server.keeper_watch import KeeperWatch
from leasectl.server.metrics import Meter
from leasectl.server.notices import Notices
from leasectl.server.sleeps import sleep_through_async
from leasectl.server.withdrawn_keys import WithdrawnKeys
from leasectl.state.amendments import note_answer
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead, this_process
from leasectl.text.naming import is_name

# What is granted to a key and can't be delivered is given back if nobody asks for it again for so
# long; a client that lives asks within seconds.
CONFIRM_SECONDS = 600.0


class NotReleased(LeaseError):
    """Names couldn't be given back.

    Args:
        name: The first that couldn't.
        reason: Why.
        released: Those before it.
    """

    def __init__(self, name: str, reason: LeaseError, released: Sequence[str]) -> None:
        super().__init__(str(reason))
        self.name = name
        self.reason = reason
        self.released = tuple(released)


class _Wait:
    """One acquisition under way, and how many requests wait for its outcome."""

    def __init__(self, task: asyncio.Task[Handle], request: Request) -> None:
        self.task = task
        self.count = request.count
        self.key = key_in(request)
        self.listeners = 0
        self.is_over = False

    def end(self) -> None:
        """Take it out of the queue; nothing happens to one that has come to its end."""
        if not self.task.done():
            self.is_over = True
            self.task.cancel()


class ServedLeases:
    """The leases of all clients; everything happens in one thread.

    Args:
        service: On the state directory and backend that are served.
        acquire_seconds: How long a request may wait.
        clock: Where times come from.
        meter: Told of grants.
        notices: What the server's operator is told by.
        keeper_watch: Told when there is more to be kept.
    """

    def __init__(
        self,
        service: Service,
        *,
        acquire_seconds: float,
        clock: Clock,
        meter: Meter,
        notices: Notices,
        keeper_watch: KeeperWatch,
    ) -> None:
        self.service = service
        self._acquire_seconds = acquire_seconds
        self._clock = clock
        self._meter = meter
        self._notices = notices
        self._keeper_watch = keeper_watch
        self._waits: dict[str, _Wait] = {}
        self._withdrawn = WithdrawnKeys(clock=clock)
        self._closing = False

    # ---- acquire

    async def acquire(
        self,
        pool_type: str,
        count: int,
        *,
        client: str,
        key: str | None,
        gone: asyncio.Future[None],
        in_all: int = 1,
    ) -> Handle:
        """Get leases for a client, or find those that its key was granted before.

        The grant is unconfirmed from the return of this on; `answered` says what became of it.

        Args:
            pool_type: A type.
            count: How many, at least 1.
            client: Its address, for people.
            key: Its `Idempotency-Key`.
            gone: Done when the client no longer waits.
            in_all: How many it will ask for, one by one, this being the first.

        Raises:
            InvalidRequest: The pool could never give so many.
            Cancelled: The client went away, the server ends, or the request was withdrawn.
            LeaseError: As `Service.acquire`.
        """
        handle_id = served_id(pool_type, key)
        handle = self._granted_before(handle_id, count)
        if handle is None:
            self._check_capacity(pool_type, in_all)
            handle = await self._wait(handle_id, pool_type, count, client, key, gone)
        with self.service.state.transaction():
            if not note_answer(self.service.state, handle, confirmed=False):
                raise Cancelled("the lease was released before it could be told of")
        self._keeper_watch.look()
        return handle

    def _check_capacity(self, pool_type: str, in_all: int) -> None:
        if in_all > 1:
            (pool,) = self.service.pools.pools(pool_type)
            if pool.capacity < in_all:
                raise too_few(pool_type, pool.capacity, in_all)

    def _granted_before(self, handle_id: str, count: int) -> Handle | None:
        """The grant that a key has, if it has one that counts."""
        handle = self.service.handles.load(handle_id)
        if handle is None or handle_id in self._waits:
            return None
        if handle.state != "released" and not self._is_left_over(handle):
            if handle.state != "held":
                raise LeaseError("another server waits with the same Idempotency-Key")
            if handle.leases:
                _check_same(handle.request.count, count)
                return handle
        # Also what a backend didn't answer, and may have granted.
        finish(self.service, handle, by="guard")
        return None

    def _is_left_over(self, handle: Handle) -> bool:
        """Tell whether a server was killed before it could tell of it."""
        return is_dead(handle.waiter)

    async def _wait(
        self,
        handle_id: str,
        pool_type: str,
        count: int,
        client: str,
        key: str | None,
        gone: asyncio.Future[None],
    ) -> Handle:
        if self._closing:
            raise Cancelled("context canceled: the server is shutting down")
        if key is not None and self._withdrawn.covers(key):
            raise Cancelled("context canceled: its client has given this request up")
        while handle_id in self._waits and self._waits[handle_id].is_over:
            await asyncio.wait((self._waits[handle_id].task,))
        wait = self._waits.get(handle_id)
        if wait is None:
            wait = self._start(handle_id, pool_type, count, client, key)
        _check_same(wait.count, count)
        wait.listeners += 1
        try:
            # What is free is had, before anybody looks whether the client is still there.
            await asyncio.sleep(0)
            await asyncio.wait((wait.task, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            wait.listeners -= 1
            if not wait.listeners:
                wait.end()
        if wait.is_over:
            await asyncio.wait((wait.task,))
        if not wait.task.done() or wait.task.cancelled():
            why = ": the server is shutting down" if self._closing else ""
            raise Cancelled(f"context canceled{why}")
        return wait.task.result()

    def _start(
        self, handle_id: str, pool_type: str, count: int, client: str, key: str | None
    ) -> _Wait:
        request = served_request(pool_type, count, client=client, key=key)
        patience = Patience(self._acquire_seconds, warn=self._notices.backend_is_silent)
        steps = turn(self.service, request, handle_id=handle_id, patience=patience)
        since = self._clock.elapsed()

        async def acquire() -> Handle:
            handle = await sleep_through_async(steps, now=self._clock.elapsed)
            self._meter.granted(pool_type, self._clock.elapsed() - since)
            return handle

        def forget(task: asyncio.Task[Handle]) -> None:
            del self._waits[handle_id]
            if not task.cancelled():
                task.exception()  # there may be nobody left who would ask for it

        wait = _Wait(asyncio.ensure_future(acquire()), request)
        wait.task.add_done_callback(forget)
        self._waits[handle_id] = wait
        return wait

    # ---- after the answer

    def answered(self, handle: Handle, delivered: bool) -> None:
        """Settle a grant once it is known what became of its answer.

        What was delivered is confirmed. What wasn't goes back: at once if nobody can ask for it
        again, else after a while.
        """
        try:
            with self.service.state.transaction():
                current = self.service.handles.current(handle.id, handle.acquisition)
                if current is None or not current.unconfirmed:
                    return  # released meanwhile, or confirmed by another connection
                if delivered:
                    note_answer(self.service.state, current, confirmed=True)
                    return
            if key_in(current.request) is None:
                finish(self.service, current)
            else:
                arm(self.service, whole(current), CONFIRM_SECONDS, again=False)
        except LeaseError as error:
            self._notices.tell(handle.id, f"{handle.id} stays unconfirmed: {error}")

    # ---- release

    def release(self, names: Sequence[str], *, key: str | None) -> None:
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
                self._release_one(name, key)
            except LeaseError as error:
                raise NotReleased(name, error, released) from error
            released.append(name)

    def _release_one(self, name: str, key: str | None) -> None:
        service = self.service
        if not is_name(name):  # what no database could be asked for, too
            raise NotFound(f"no resource name {name}")
        with service.atomic():
            handle = service.handles.holding(name, prefer=service.backend_url)
            if handle is None or not self._may_release(handle, key):
                raise NotFound(f"no resource name {name}")
            release(service, ReleaseTarget(handle.id, handle.acquisition, (name,)))
            left = service.handles.load(handle.id)
            if left is not None and left.state == "released":
                with service.state.transaction():
                    service.handles.forget(handle.id, handle.acquisition)

    def _may_release(self, handle: Handle, key: str | None) -> bool:
        if handle.backend != self.service.backend_url or not handle.served:
            return False
        if handle.state != "held" or handle.waiter == this_process():
            return False  # no answer has named it yet
        granted_with = key_in(handle.request)
        return key is None or (granted_with is not None and covers(key, granted_with))

    def withdraw(self, key: str) -> None:
        """Undo all that was asked for with a key, or one that begins with it, now and later.

        Raises:
            LeaseError: Something couldn't be given back.
        """
        self._withdrawn.add(key)
        for wait in list(self._waits.values()):
            if wait.key is not None and covers(key, wait.key):
                wait.end()
        for handle in self.service.handles.active():
            granted_with = key_in(handle.request)
            if handle.state == "held" and granted_with is not None and covers(key, granted_with):
                finish(self.service, handle)

    # ---- the end

    def close(self) -> None:
        """End all waits; whatever has been granted stays as it is."""
        self._closing = True
        for wait in list(self._waits.values()):
            wait.end()

    @property
    def is_closing(self) -> bool:
        return self._closing


def _check_same(before: int, now: int) -> None:
    if before != now:
        raise InvalidRequest(f"the Idempotency-Key was used with count={before} before")
