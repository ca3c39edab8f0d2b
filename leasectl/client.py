"""The Python library: lease resources from Python as the command line does from a shell.

`lease` takes a lease for one block. A `Client` keeps its connections between requests, and may be
shared by threads. A `Lease` is what both return.

The library installs no signal handler and prints nothing. Messages go to the logger ``leasectl``.
Each lease that is held has a daemon thread, which renews the lease and notices its loss.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Union

from leasectl.backends.contract import Patience, Progress
from leasectl.errors import (
    BackendUnreachable,
    Cancelled,
    InvalidRequest,
    LeaseError,
    LeaseLost,
    NotAllowed,
    WorkFailed,
)
from leasectl.leases.acquire import acquire, announce, reacquire
from leasectl.leases.opening import (
    choose_backend,
    default_priority,
    new_context,
    open_at,
    process_named_by,
    state_directory,
)
from leasectl.leases.release import arm, finish, leave_failed, release, release_each
from leasectl.leases.renew import renew
from leasectl.leases.request import make_request
from leasectl.leases.service import Expected, Service
from leasectl.leases.targets import targets_at, targets_of_names, whole_names
from leasectl.model import Handle, OnReclaim, Process, Request, whole
from leasectl.run.lease_thread import LeaseThread
from leasectl.run.start_delay import renew_before_use
from leasectl.state.handles import new_id
from leasectl.system import afterwards
from leasectl.system.clock import Clock
from leasectl.system.lock_wait import LockLimit
from leasectl.system.poll import READABLE, Alarm, Interrupt
from leasectl.system.process import this_process
from leasectl.text.durations import (
    LONGEST_SECONDS,
    DurationRange,
    NoTime,
    draw_between,
    drawn_between,
    parse_duration,
    parse_duration_range,
)
from leasectl.text.naming import check_label_key, check_name, check_own_type, work_in
from leasectl.text.wording import counted

if TYPE_CHECKING:
    from leasectl.once.results import Asked, Outcome

# Seconds, a timedelta, or a text such as "90s", "20m" or "1h30m".
Duration = Union[float, timedelta, str]
# The process whose death gives a lease back: this one, another, or none.
Guard = Union[int, Literal["self"], None]

_log = logging.getLogger("leasectl")
# Events are sent beside the answers; the last of a program are sent at its end.
atexit.register(afterwards.finish)
# Each has some six descriptors; more than these are closed after use.
_MOST_IDLE = 4
_LOOK_AT_CANCEL_SECONDS = 0.05


class Loss:
    """Whether, and why, a lease was lost. It may be waited on by any thread.

    Example:
        >>> with leasectl.lease("azure--install") as lease:
        ...     lease.lost.call(lambda: print("stop at once"))
        ...     lease.lost.wait(timeout=0.1)
        False
    """

    def __init__(self, ask: Callable[[], str]) -> None:
        self._reason = ""
        self._ask = ask
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def reason(self) -> str:
        """Who took the lease, and why; empty if that isn't known."""
        if self._event.is_set() and not self._reason:
            self._reason = self._ask()  # it may have been recorded after the loss was noticed
        return self._reason

    def is_set(self) -> bool:
        """Return whether the loss was noticed."""
        return self._event.is_set()

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait for the loss; return whether the lease is lost.

        Args:
            timeout: How long at most; None for no limit.
        """
        return self._event.wait(None if timeout is None else _seconds("timeout", timeout))

    def call(self, callback: Callable[[], object]) -> None:
        """Call a function once the lease is lost, at once if it is lost already.

        Args:
            callback: Called without arguments, in the lease's own thread. It must return soon. Its
                errors are logged.
        """
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        _call(callback)

    def _set(self, reason: str) -> None:
        with self._lock:
            if self._event.is_set():
                return
            self._reason = reason
            self._event.set()
            callbacks = [*self._callbacks]
        for each in callbacks:
            _call(each)

    def _clear(self) -> None:
        with self._lock:
            self._reason = ""
            self._event.clear()


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a callback for a lost lease failed")


class Lease:
    """A lease that this process holds; a context manager that gives the lease back.

    Leaving its block releases the lease. If the lease was lost meanwhile, leaving the block raises
    `LeaseLost`, unless another exception is propagating.

    In a forked child the lease is still the parent's: all methods raise `NotAllowed` there.

    Not promised: a process that is suspended beyond the deadline, or whose other threads keep the
    interpreter's lock for so long, notices the loss too late. Pass `fence` to what you change, so
    that it can reject an older holder.

    Attributes:
        names: The leased resources.
        fences: Their fencing tokens, in the same order; 0 where the backend has none.
        type: The pool that they come from.
        handle: The path of the lease's handle, as ``leasectl acquire`` prints it.
        backend: The URL of the backend.
        lost: Whether the lease was lost, as an object to wait on.

    Example:
        >>> with leasectl.lease("azure--install", wait="2h", release_after="20m") as lease:
        ...     print(lease.name)
        azure--install--00
    """

    def __init__(self, client: Client, request: Request, guard: Guard) -> None:
        self.names: tuple[str, ...] = ()
        self.fences: tuple[int, ...] = ()
        self.type = request.type
        self.handle = ""
        self.lost = Loss(self._why_lost)
        self.backend = client.backend
        self._client = client
        self._request = request
        self._guard = guard
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._record: Handle | None = None
        self._thread: LeaseThread | None = None

    @property
    def name(self) -> str:
        """The leased resource.

        Raises:
            InvalidRequest: There are several, or none; use `names`.
        """
        if len(self.names) != 1:
            raise InvalidRequest(f"the lease has {len(self.names)} resources; use lease.names")
        return self.names[0]

    @property
    def fence(self) -> int:
        """The fencing token of the only resource: it grows with each grant.

        Raises:
            InvalidRequest: There are several resources, or none; use `fences`.
        """
        return self.fences[self.names.index(self.name)]

    @property
    def properties(self) -> dict[str, dict[str, str]]:
        """The properties of each resource by name, read from the backend now.

        Raises:
            BackendUnreachable: The backend doesn't answer.

        Example:
            >>> with leasectl.lease("azure--install") as lease:
            ...     print(lease.properties[lease.name])
            {'region': 'eastus'}
        """
        from leasectl.leases.properties import properties_of

        record = self._held()
        with self._client._service() as service:
            found = properties_of(service, record)
        return {name: dict(values) for name, values in found.items()}

    @property
    def is_held(self) -> bool:
        """Whether this process may use the resources: neither lost nor released.

        A release by `release_after`, or by another process, is read from the records.
        """
        if self._pid != os.getpid() or self._record is None or self.is_lost:
            return False
        if self._thread is None:  # a failed reacquire that couldn't release it: nobody renews it
            return False
        with self._client._service() as service:
            return service.current(whole(self._record)) is not None

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost, or will be so soon that its use must end now.

        A lease that expires counts as lost a fifth of its ttl before its `deadline`.
        """
        self._check_process()
        thread = self._thread
        return self.lost.is_set() or (thread is not None and thread.is_lost())

    @property
    def deadline(self) -> float | None:
        """When another holder may be granted the lease, unless it is renewed meanwhile.

        In seconds of ``time.clock_gettime(time.CLOCK_BOOTTIME)``, counted from the sending of the
        last renewal that succeeded. None for a lease without a ttl.

        Example:
            >>> with leasectl.lease("azure--install", ttl="1m") as lease:
            ...     left = lease.deadline - time.clock_gettime(time.CLOCK_BOOTTIME)
            >>> 50 < left <= 60
            True
        """
        self._check_process()
        thread = self._thread
        return None if thread is None else thread.deadline

    def renew(self) -> None:
        """Renew the lease now, beside the renewals in the background.

        Raises:
            LeaseLost: The lease was lost.
            NotAllowed: The lease was released.
            BackendUnreachable: The backend doesn't answer.
            NotSupported: Leases of this backend aren't renewed.

        Example:
            >>> with leasectl.lease("azure--install", ttl="1m") as lease:
            ...     lease.renew()
        """
        record = self._held()
        sent_at = Clock().elapsed()
        try:
            with self._client._service() as service:
                renew(service, whole(record))
        except LeaseLost as error:
            self.lost._set(str(error))
            raise
        thread = self._thread
        if thread is not None:
            thread.renewed(sent_at)

    def reacquire(
        self,
        *,
        wait: Duration | None = None,
        connect_timeout: Duration | None = None,
        cancel: threading.Event | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> None:
        """Give back what the lease still has, and acquire the same request again.

        It may be lost or released before. The request goes to the end of the queue, and the time of
        ``release_after`` starts again.

        Args:
            wait: See `Client.acquire`.
            connect_timeout: See `Client.acquire`.
            cancel: See `Client.acquire`.
            progress: See `Client.acquire`.

        Raises:
            InvalidRequest: A duration is invalid, or it is the lease of a `Work`; nothing changes.
            LeaseError: See `Client.acquire`. The lease is released then, and can be reacquired
                later.

        Example:
            >>> with leasectl.lease("azure--install") as lease:
            ...     before = lease.fence
            ...     lease.reacquire(wait="10m")
            ...     lease.fence > before
            True
        """
        self._check_process()
        waiting = _Waiting(wait, connect_timeout, cancel, progress)  # a wrong one ends nothing
        if work := work_in(self._request.labels):
            raise InvalidRequest(
                f"the lease of {work} can't be reacquired: meanwhile others would begin the work"
            )
        with self._lock:
            self._stop()
            self._client._obtain(self, waiting)

    def release(self, *, delay: Duration | None = None) -> tuple[str, ...]:
        """Give the lease back, now or later. A second release does nothing.

        Args:
            delay: How long from now, or a range such as ``"18m-22m"``. The keeper releases then, or
                leaving the block does, whichever is first.

        Returns:
            The names that this call has released.

        Raises:
            BackendUnreachable: The server didn't take all of it back; the keeper goes on trying if
                the lease would be renewed otherwise.
            LeaseError: The lease couldn't be given back.

        Example:
            >>> lease = leasectl.lease("azure--install")
            >>> lease.release()
            ('azure--install--00',)
            >>> lease.release()
            ()
        """
        self._check_process()
        with self._lock:
            if delay is not None:
                self._release_later(_range("delay", delay))
                return ()
            self._stop()
            record, self._record = self._record, None
            if record is None:
                return ()
            try:
                with self._client._service() as service:
                    return _give_back(service, record)
            except BaseException:
                self._record = record
                raise

    def _release_later(self, delay: DurationRange) -> None:
        seconds = draw_between(*delay)
        record = self._held()
        with self._client._service() as service:
            arm(service, whole(record), seconds, between=drawn_between(delay))
        if self._thread is not None:
            self._thread.look_for_release(Clock().elapsed() + seconds)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        loss = None
        try:
            loss = self.loss() if self.is_lost else None
            self.release()
        except LeaseError as failure:
            if error is None:
                raise
            _log.warning("%s", failure)
        except BaseException:  # interrupted: what was begun is done, and then the program may end
            with contextlib.suppress(LeaseError):
                self.release()
            raise
        if loss is not None and error is None:
            raise loss

    def __repr__(self) -> str:
        return f"<leasectl.Lease {self.handle}: {', '.join(self.names)}>"

    def loss(self) -> LeaseLost:
        """Return the error for the loss of this lease, as leaving the block raises it."""
        why = f" ({self.lost.reason})" if self.lost.reason else ""
        return LeaseLost(f"the lease on {', '.join(self.names)} was lost while in use{why}")

    def _why_lost(self) -> str:
        record = self._record
        if record is None or self._pid != os.getpid():
            return ""
        with contextlib.suppress(LeaseError), self._client._service() as service:
            found = service.handles.load(record.id)
            return "" if found is None else found.lost_reason
        return ""

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise NotAllowed(
                f"lease {self.handle} belongs to process {self._pid}, from which this process was "
                "forked; acquire a lease in this process"
            )

    def _held(self) -> Handle:
        self._check_process()
        if self._record is None:
            raise NotAllowed(f"lease {self.handle} was released; get it again with reacquire()")
        return self._record

    def _stop(self) -> None:
        """End the thread that looks after the lease."""
        thread = self._thread
        if thread is not None:
            if thread.is_lost():
                self.lost._set("")
            thread.close()
            self._thread = None  # not before: an interrupt may come here, too

    def _begin(self, record: Handle, thread: LeaseThread, path: str) -> None:
        """Hold what was granted."""
        self.names = record.names
        self.fences = tuple(each.fence for each in record.leases)
        self.type = record.type or record.request.type
        self.handle = path
        self._record = record
        self._thread = thread


class _Waiting:
    """How long a request waits, and what ends the wait.

    Args:
        wait: See `Client.acquire`.
        connect_timeout: See `Client.acquire`.
        cancel: See `Client.acquire`.
        progress: See `Client.acquire`.
    """

    def __init__(
        self,
        wait: Duration | None,
        connect_timeout: Duration | None,
        cancel: threading.Event | None,
        progress: Callable[[Progress], object] | None,
    ) -> None:
        self.seconds = None if wait is None else _seconds("wait", wait)
        self._connect_seconds = (
            None if connect_timeout is None else _seconds("connect_timeout", connect_timeout)
        )
        self._cancel = cancel
        self._progress = progress
        self._alarm = Alarm()

    @contextlib.contextmanager
    def patience(self) -> Iterator[Patience]:
        """Return what the acquisition is given."""
        patience = Patience(
            wait_seconds=self.seconds, connect_seconds=self._connect_seconds, warn=_log.warning
        )
        if self._progress is not None:
            patience = patience._replace(report=self._report)
        try:
            if self._cancel is not None:
                self._check()
                interrupts = tuple(Interrupt(fd, READABLE, self._check) for fd in self._alarm.fds)
                patience = patience._replace(interrupts=interrupts)
            yield patience
        finally:
            self._alarm.close()

    def _report(self, progress: Progress) -> None:
        assert self._progress is not None
        self._progress(progress)

    def _check(self) -> None:
        """Look at the event now, and again in a moment: no descriptor tells of it."""
        assert self._cancel is not None
        if self._cancel.is_set():
            raise Cancelled("the request was cancelled while it waited")
        self._alarm.set(Clock().elapsed() + _LOOK_AT_CANCEL_SECONDS)


class Client:
    """Leases from one backend. Threads may share it.

    The backend is the argument, else ``LEASECTL_BACKEND``, else ``LEASE_PROXY_SERVER_URL``, else
    the embedded pool of the state directory. The environment is read once, here.

    In a forked child it can be used again: there it opens connections of its own.

    Args:
        backend: The URL; None for the environment's.
        labels: Shown to people beside the holder of each lease.

    Attributes:
        backend: The URL of the backend.

    Raises:
        InvalidRequest: There is no such backend, or ``LEASECTL_PRIORITY`` is no priority.

    Example:
        >>> with leasectl.Client(labels={"url": "https://ci/job/7"}) as client:
        ...     lease = client.acquire("gcp--install", count=2, wait=0)
        ...     print(lease.names)
        ...     _ = lease.release()
        ('gcp--install--00', 'gcp--install--01')
    """

    def __init__(
        self, backend: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> None:
        self.backend = choose_backend(backend).url
        self._labels = dict(labels or {})
        self._context = new_context(backend, warn=_log.warning)
        self._priority = default_priority(backend, _log.warning)
        self._directory = os.path.abspath(state_directory())
        self._lock = threading.Lock()
        self._idle: list[Service] = []
        self._pid = os.getpid()
        self._most_idle = _MOST_IDLE
        afterwards.go_on()

    def acquire(
        self,
        type: str | Sequence[str],
        *,
        each: bool = False,
        count: int | Literal["all"] = 1,
        name: str | None = None,
        where: Mapping[str, str] | Sequence[str] = (),
        wait: Duration | None = None,
        connect_timeout: Duration | None = None,
        release_after: Duration | None = None,
        ttl: Duration | None = None,
        priority: int | None = None,
        supersede: str | None = None,
        labels: Mapping[str, str] | None = None,
        on_reclaim: OnReclaim = "keep",
        guard: Guard = "self",
        cancel: threading.Event | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> Lease:
        """Wait for a lease.

        Requests are served by priority, then in order of arrival. All resources are granted, or
        none.

        Args:
            type: The pool. Of several, the lease comes from the one that can grant it first.
            each: Lease resources of each of several pools, granted together.
            count: How many resources, of each pool with ``each``; ``"all"`` for the whole pool.
            name: The one resource that will do.
            where: Properties that each resource must have: a mapping, or texts such as
                ``"region=eastus"`` and ``"zone!=2"``.
            wait: How long to wait at most; 0 for not at all, None for no limit.
            connect_timeout: How long a server may be away before the request fails. Default: as
                long as ``wait``; without that, some 10 s.
            release_after: The keeper releases the lease this long after the grant; a range such as
                ``"18m-22m"`` for a random time in it.
            ttl: The lease expires this long after its last renewal. Default: the backend's.
            priority: Requests with a higher priority are served first. Default:
                ``LEASECTL_PRIORITY``, else 0.
            supersede: Withdraw older waiting requests for this pool with the same key.
            labels: Beside those of the client.
            on_reclaim: The answer to a reclaim: release what isn't in use, or keep everything.
            guard: The process whose death gives the lease back, however it dies: ``"self"`` for
                this one, a process id, or None for none.
            cancel: Ends the wait when it is set, by another thread.
            progress: Called at the start of the wait, and then once a minute.

        Raises:
            InvalidRequest: The request is invalid, or not possible on this backend (64).
            NotFound: There is no such pool (66).
            BackendUnreachable: The server doesn't answer (69).
            StateUnwritable: The state directory can't be written (73).
            NoLease: None was granted in time (75). `Cancelled` is one: the wait was cancelled.
            NotAllowed: The server refuses the request (77).
            KeyboardInterrupt: Ctrl-C. After any error, nothing is leased.

        Example:
            >>> client = leasectl.Client()
            >>> with client.acquire("gcp--install", where={"zone": "b"}) as lease:
            ...     print(lease.name)
            gcp--install--01
        """
        types = (type,) if isinstance(type, str) else tuple(type)
        if not types:
            raise InvalidRequest("type is empty; name a pool")
        conditions = [f"{k}={v}" for k, v in where.items()] if isinstance(where, Mapping) else where
        shown = {check_label_key(k): v for k, v in {**self._labels, **(labels or {})}.items()}
        request = make_request(
            pool_types=tuple(map(check_own_type, types)),
            count=None if count == "all" else count,
            name=None if name is None else check_name(name),
            where=(conditions,) if isinstance(conditions, str) else tuple(conditions),
            release_after=None if release_after is None else _range("release_after", release_after),
            ttl_seconds=None if ttl is None else _seconds("ttl", ttl),
            labels=tuple(f"{key}={value}" for key, value in shown.items()),
            priority=self._priority if priority is None else priority,
            supersede=supersede,
            on_reclaim=on_reclaim,
            each=each,
        )
        lease = Lease(self, request, guard)
        self._obtain(lease, _Waiting(wait, connect_timeout, cancel, progress))
        return lease

    def once(
        self,
        key: str,
        *,
        inputs: Sequence[str | bytes] = (),
        keep: Duration = "24h",
        attempts: int = 3,
        on_failure: Literal["next", "share"] = "next",
        wait: Duration | None = None,
        connect_timeout: Duration | None = None,
        ttl: Duration | None = None,
        cancel: threading.Event | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> Work:
        """Do some work in one of several processes, and share its result; see `Work`.

        Processes that use ``leasectl once`` share it, too.

        Args:
            key: What the work is called: a printable text of up to 200 characters.
            inputs: Part of the work's identity, beside the key; the order counts.
            keep: How long the result is kept for later callers.
            attempts: Failures, over all waiters, before the rest give up.
            on_failure: When the block raises an exception, the next waiter does the work, or all
                waiters share the failure.
            wait: How long to wait at most for those who do it.
            connect_timeout: See `acquire`.
            ttl: The time after which a process that stopped renewing its lease counts as dead.
            cancel: See `acquire`.
            progress: See `acquire`.

        Returns:
            A context manager, which waits when its block is entered. It raises the errors of
            `acquire`, and `WorkFailed` if others have failed for us.

        Raises:
            InvalidRequest: A value is invalid (64).
        """
        from leasectl.once.results import Asked, Terms, check_terms
        from leasectl.once.work import work_of
        from leasectl.text.naming import check_key

        check_key(key)
        if attempts < 1:
            raise InvalidRequest(f"attempts {attempts}: give at least 1")
        terms = Terms(_seconds("keep", keep), attempts, on_failure == "share", None)
        check_terms(terms)
        contents = [os.fsencode(each) for each in inputs]
        ttl_seconds = None if ttl is None else _seconds("ttl", ttl)
        asked = Asked(work_of(key, contents), (), terms, ttl_seconds=ttl_seconds)
        return Work(self, asked, _Waiting(wait, connect_timeout, cancel, progress))

    def release(
        self,
        *,
        names: Sequence[str] = (),
        handle: str = "",
        force: bool = False,
        reason: str = "",
        holder: str | None = None,
        fence: int | None = None,
        now: bool = False,
    ) -> tuple[str, ...]:
        """Release leases of other processes, as ``leasectl release`` does.

        Args:
            names: The leases on these resources. Your job and build must hold them, unless
                ``force`` is given.
            handle: The lease of this handle, a path as ``leasectl acquire`` prints it.
            force: Release whoever holds them. The holder is told, and the lease is free when it
                has stopped using the resource, or at the deadline of its last renewal.
            reason: Shown to that holder.
            holder: Release only if this is still the holder.
            fence: Release only if this is still the fencing token.
            now: With ``force``, free the lease at once, although its holder may still use it.

        Returns:
            The names that this call has released.

        Raises:
            InvalidRequest: Neither or both of ``names`` and ``handle`` are given (64).
            NotFound: There is no such resource or handle (66).
            NotAllowed: Another job holds one, or a lease isn't the expected one (77).
            BackendUnreachable: The server doesn't answer (69).

        Example:
            >>> lease = leasectl.lease("azure--install", guard=None)
            >>> leasectl.Client().release(names=[lease.name], force=True, reason="it is stuck")
            ('azure--install--00',)
            >>> lease.lost.wait(timeout="10s")
            True
            >>> _ = lease.release()
        """
        if bool(names) == bool(handle) or isinstance(names, str):
            raise InvalidRequest("release: give names, a list of resources, or handle, a path")
        if (now or reason) and not force:
            raise InvalidRequest(f"release: {'now' if now else 'reason'} needs force=True")
        expected = Expected(holder, fence)
        released: list[str] = []
        with self._service() as service:
            held = [*filter(None, whole_names(service, names).values())]
            if force:
                from leasectl.leases.release_forced import check_reason, release_by_force

                if handle:
                    raise InvalidRequest("release: force needs names, not a handle")
                forced = release_by_force(
                    service,
                    held,
                    reason=check_reason(reason),
                    expected=expected,
                    at_once=now,
                )
                return tuple(each.name for each in forced if each.ended_before is None)
            if handle:
                targets = targets_at(service, handle)
            else:
                targets = targets_of_names(service, held, expected=expected)
            release_each(service, targets, tell=released.extend)
        return tuple(released)

    def status(self, type: str | None = None) -> dict[str, Any]:
        """Return pools, holders and waiters, as ``leasectl status --json`` shows them.

        Args:
            type: Only this pool; None for all.

        Raises:
            NotFound: There is no such pool (66).
            BackendUnreachable: The server doesn't answer (69).

        Example:
            >>> status = leasectl.Client().status("azure--install")
            >>> [(pool["type"], pool["free"]) for pool in status["pools"]]
            [('azure--install', 1)]
        """
        from leasectl.pools.status import encode_status, read_status

        with self._service() as service:
            pool_type = None if type is None else check_own_type(type)
            return encode_status(read_status(service, pool_type))

    def close(self) -> None:
        """Close the connections. Leases that are held stay; a later request opens others."""
        self._forget_parent()
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def __enter__(self) -> Client:
        return self

    def __del__(self) -> None:
        """Close the idle connections: from Python 3.13 on, `sqlite3` warns of open ones."""
        with contextlib.suppress(Exception):  # the interpreter may be ending
            if self._pid == os.getpid():
                self.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- for leases

    @contextlib.contextmanager
    def _service(self, seconds: float | None = None) -> Iterator[Service]:
        """Lend a service to this thread. After an interrupt, it is closed."""
        service = self._take()
        try:
            with service.state.lock_limit.within_wait(seconds):
                yield service
        except Exception:
            self._put(service)
            raise
        except BaseException:  # it may have struck between any two lines
            with contextlib.suppress(Exception):
                service.close()
            raise
        self._put(service)

    def _take(self) -> Service:
        self._forget_parent()
        with self._lock:
            service = self._idle.pop() if self._idle else None
        if service is not None and not service.state.was_removed():
            return service
        if service is not None:
            service.close()
        return open_at(self._directory, self._context, LockLimit(uses_timer=False))

    def _put(self, service: Service) -> None:
        with self._lock:
            if len(self._idle) < self._most_idle:
                self._idle.append(service)
                return
        service.close()

    def _forget_parent(self) -> None:
        """In a forked child, leave the connections to the parent."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.Lock()
            _of_parents.extend(self._idle)
            self._idle = []

    def _obtain(self, lease: Lease, waiting: _Waiting) -> None:
        """Acquire the request of a lease, anew or again, and look after what is granted."""
        before = lease._record
        handle_id = new_id(lease._request.type) if before is None else before.id
        granted: Handle | None = None
        lease.names, lease.fences = (), ()
        try:
            guard = _process_of(lease._guard)
            with self._service(waiting.seconds) as service, waiting.patience() as patience:
                if before is not None:
                    granted = reacquire(service, before.id, patience=patience)
                else:
                    granted = acquire(
                        service,
                        lease._request,
                        patience=patience,
                        guard=guard,
                        followed=True,
                        handle_id=handle_id,
                    )
                self._hold(lease, service, granted, guard)
        except BaseException as error:
            may_hold = before is not None or granted is not None
            if may_hold or not isinstance(error, LeaseError):
                self._undo(lease, handle_id, before)
            raise

    def _hold(self, lease: Lease, service: Service, granted: Handle, guard: Process | None) -> None:
        """Announce a grant, and look after it from now on."""
        sent_at = renew_before_use(service, granted)
        announce(service, granted, guard=guard, runner=this_process())
        lease.lost._clear()
        own = self._take()
        try:
            thread = LeaseThread(
                own,
                granted,
                renewed_at=sent_at,
                guard=guard if guard != this_process() else None,
                on_lost=lease.lost._set,
                on_end=self._put,
            )
        except BaseException:
            own.close()
            raise
        lease._begin(granted, thread, service.state.names_path(granted.id))
        thread.start()

    def _undo(self, lease: Lease, handle_id: str, before: Handle | None) -> None:
        """Give back what a failed acquisition may have been granted, and what was held before."""
        with contextlib.suppress(LeaseError):
            lease._stop()
            with self._service(0.0) as service:
                record = service.handles.load(handle_id)
                if record is None:
                    lease._record = None
                elif before is None:
                    lease._record = None
                    if (record.waiter, record.runner) != (None, None):  # the keeper hasn't got it
                        finish(service, record)
                elif record.state == "released":
                    lease._record = record
                elif record.acquisition == before.acquisition or this_process() in (
                    record.waiter,
                    record.runner,
                ):  # another process hasn't acquired it meanwhile
                    lease._record = record
                    release(service, whole(record))


class Work:
    """Work that one process does, and whose result all others share; a context manager.

    Entering its block waits until another process has done the work, or it is this one's turn. If
    the block raises an exception, the work has failed, and the next waiter does it. If the lease
    was lost meanwhile, nothing is recorded, and leaving the block raises `LeaseLost`.

    Attributes:
        is_done: Another process has done the work, and `result` is what it recorded. If not, the
            block does it, and sets `result`.
        result: The result, up to 1 MiB (180 KiB on Kubernetes).
        lease: The lease under which the block does the work; None where it is done.

    Example:
        >>> def work_out():
        ...     with leasectl.Client().once("import-4.21", inputs=["sha256:12ab"]) as work:
        ...         if not work.is_done:
        ...             print("importing")
        ...             work.result = b"imported"
        ...     return work.result
        >>> work_out(), work_out()
        importing
        (b'imported', b'imported')
    """

    def __init__(self, client: Client, asked: Asked, waiting: _Waiting) -> None:
        self.is_done = False
        self.result = b""
        self.lease: Lease | None = None
        self._client = client
        self._asked = asked
        self._waiting = waiting
        self._exits = contextlib.ExitStack()
        self._began_at = 0.0

    def __enter__(self) -> Work:
        from leasectl.once.own_work import OwnWork

        client, request = self._client, self._asked.request
        with contextlib.ExitStack() as exits:
            service = exits.enter_context(client._service(self._waiting.seconds))
            patience = exits.enter_context(self._waiting.patience())
            self._own = own = OwnWork(service, self._asked, warn=_log.warning)

            def hold(handle: Handle) -> None:
                lease = Lease(client, request, "self")
                exits.callback(lease._stop)
                client._hold(lease, service, handle, this_process())
                self.lease = lease

            try:
                outcome = own.begin(patience, hold)
            except BaseException:
                with contextlib.suppress(LeaseError):
                    own.leave()
                raise
            if outcome is None:
                self._began_at = Clock().elapsed()
                self._exits = exits.pop_all()
                return self
            own.leave()
        self.lease, self.is_done = None, True
        if outcome.content is None:
            raise _failed(self._asked.work.title, outcome)
        self.result = outcome.content
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if self.is_done:
            return
        assert self.lease is not None
        seconds = Clock().elapsed() - self._began_at
        with self._exits:
            try:
                is_lost = self.lease.is_lost
                self.lease._stop()  # each step below renews the lease itself
                if is_lost:
                    if error is None:
                        raise self.lease.loss()
                elif error is None:
                    self._own.record(self.result, seconds)
                elif isinstance(error, Exception):
                    self._fail(error, seconds)
                else:
                    self._own.stop()
            finally:
                self._own.leave()

    def _fail(self, error: Exception, seconds: float) -> None:
        from leasectl.once.error_output import safe_lines

        lines = safe_lines(f"{type(error).__name__}: {error}")
        try:
            self._own.fail(error, lines, seconds)
        except LeaseError as failure:
            _log.warning("%s", failure)


def _failed(title: str, outcome: Outcome) -> WorkFailed:
    lines = f": {outcome.lines.splitlines()[-1]}" if outcome.lines else ""
    error = WorkFailed(
        f"work {title} failed {counted(outcome.times, 'time')} in other processes; the last "
        f"exit code was {outcome.status}{lines}"
    )
    error.exit_code = outcome.status or 1
    return error


# Of processes from which this one was forked: to close them would be an affair of their own.
_of_parents: list[Service] = []


def lease(
    type: str | Sequence[str],
    *,
    backend: str | None = None,
    each: bool = False,
    count: int | Literal["all"] = 1,
    name: str | None = None,
    where: Mapping[str, str] | Sequence[str] = (),
    wait: Duration | None = None,
    connect_timeout: Duration | None = None,
    release_after: Duration | None = None,
    ttl: Duration | None = None,
    priority: int | None = None,
    supersede: str | None = None,
    labels: Mapping[str, str] | None = None,
    on_reclaim: OnReclaim = "keep",
    guard: Guard = "self",
    cancel: threading.Event | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Lease:
    """Wait for a lease, by a client of its own; see `Client` and `Client.acquire`.

    Example:
        >>> with leasectl.lease("azure--install", wait=0) as lease:
        ...     print(lease.names)
        ('azure--install--00',)
    """
    client = Client(backend)
    client._most_idle = 0
    return client.acquire(
        type,
        each=each,
        count=count,
        name=name,
        where=where,
        wait=wait,
        connect_timeout=connect_timeout,
        release_after=release_after,
        ttl=ttl,
        priority=priority,
        supersede=supersede,
        labels=labels,
        on_reclaim=on_reclaim,
        guard=guard,
        cancel=cancel,
        progress=progress,
    )


def _give_back(service: Service, record: Handle) -> tuple[str, ...]:
    """Release a handle and forget it; if its server doesn't answer, the keeper goes on."""
    try:
        return finish(service, record)
    except BackendUnreachable as error:
        leave_failed(service, whole(record), error)
        raise


def _process_of(guard: Guard) -> Process | None:
    if guard is None:
        return None
    return this_process() if guard == "self" else process_named_by("guard", guard)


def _seconds(keyword: str, value: Duration) -> float:
    """Return a duration in seconds; raise InvalidRequest if it is none."""
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except NoTime as error:
            raise InvalidRequest(f"{keyword}: {error}") from None
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if math.isnan(seconds) or not 0 <= seconds <= LONGEST_SECONDS:
        raise InvalidRequest(f"{keyword}: invalid duration {value}; use 0 s to ten years")
    return seconds


def _range(keyword: str, value: Duration) -> DurationRange:
    """Return a duration, or a range such as ``"18m-22m"``, as a range."""
    if isinstance(value, str):
        try:
            return parse_duration_range(value)
        except NoTime as error:
            raise InvalidRequest(f"{keyword}: {error}") from None
    seconds = _seconds(keyword, value)
    return DurationRange(seconds, seconds)
