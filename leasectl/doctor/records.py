"""What can be found out from the records: do they agree, and is somebody looking after them?"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple

from leasectl.backends.contract import Backend
from leasectl.backends.opening import LOCAL, open_backend
from leasectl.doctor.findings import FAIL, OK, WARN, Check, Finding
from leasectl.errors import CorruptState, StateUnwritable
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.state import keeper_process
from leasectl.state.database import SCHEMA_VERSION, unlink
from leasectl.state.directory import State
from leasectl.state.handles import Handles, renews_itself
from leasectl.system.clock import Clock, boottime_seconds
from leasectl.system.named_pipe import is_read
from leasectl.system.process import own_pid_namespace
from leasectl.text.durations import format_duration
from leasectl.text.wording import counted, listed

LONG_SECONDS = 24 * 3600.0
LOCK_PATIENCE_SECONDS = 3.0
OVERDUE_SECONDS = 10.0
_HANDLE_FILE = re.compile(r"(.+-[A-Za-z0-9]{6})(\.lock|\.new)?")
_WAITER_FILE = re.compile(r"waiter-[0-9a-f]{16}|.+-[A-Za-z0-9]{6}\.(run|[0-9]+\.cancel)")


def lock(directory: str, patience_seconds: float = LOCK_PATIENCE_SECONDS) -> Finding:
    """Is ``state.lock`` free now and then? A stopped process may hold it for ever."""
    path = os.path.join(directory, "state.lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return Finding(OK, "none yet; the first command makes it")
    except OSError as error:
        return Finding(FAIL, f"{path}: {error.strerror}", "give yourself the rights", exit_code=73)
    try:
        until = boottime_seconds() + patience_seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return Finding(OK, f"{path} is free")
            except BlockingIOError:
                if boottime_seconds() >= until:
                    return _stuck(path, os.fstat(fd))
                time.sleep(0.02)
    finally:
        os.close(fd)


def _stuck(path: str, found: os.stat_result) -> Finding:
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    holders = []
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as file:
        # A waiting one has an arrow in its second field.
        fields = [line.split() for line in file]
        holders = [each[4] for each in fields if each[1] == "FLOCK" and device in each]
    who = f" by process {', '.join(holders)}" if holders else ""
    return Finding(
        FAIL,
        f"{path} is held all the time{who}",
        "if that process is stopped, continue it with kill -CONT, or end it",
    )


def database(state: State) -> Finding:
    """Is the database sound, and of the version that this leasectl writes?"""
    path = state.path("state.db")
    problems = [str(text) for (text,) in state.query("PRAGMA integrity_check(5)")]
    if problems != ["ok"]:
        raise CorruptState(
            f"{path} is damaged ({problems[0]}); if no job here still needs its leases, start "
            f"afresh with: mv {state.directory} {state.directory}.damaged"
        )
    ((mode,),) = state.query("PRAGMA journal_mode")
    ((version,),) = state.query("PRAGMA user_version")
    size = os.path.getsize(path) >> 10
    what = f"sound, {size} KiB, schema {version} of {SCHEMA_VERSION}"
    if mode != "wal":
        return Finding(
            WARN,
            f"{what}, but its journal mode is {mode}",
            "move it to a local file system: only there SQLite can write a log ahead",
        )
    return Finding(OK, f"{what}, SQLite {sqlite3.sqlite_version}")


def checks(service: Service) -> list[Check]:
    """The checks of an opened state directory, in order."""
    return [
        Check("records", lambda: records(service)),
        Check("keeper", lambda: keeper(service)),
        Check("dead holders", lambda: dead_holders(service)),
        Check("unguarded", lambda: unguarded(service)),
        Check("foreign guards", lambda: foreign(service)),
        Check("held for long", lambda: long_held(service)),
        Check("files", lambda: files(service)),
    ]


class Disagreement(NamedTuple):
    """Two records that can't both be true, and how to let one of them go; in a transaction."""

    what: str
    settle: Callable[[], object]


def records(service: Service) -> Finding:
    """Do handles and pools agree about who holds what?"""
    with service.state.transaction():
        found = list(disagreements(service))
    if not found:
        return Finding(OK, "handles and pools agree")
    return Finding(
        FAIL,
        listed([each.what for each in found]),
        "run: leasectl doctor --fix",
        exit_code=CorruptState.exit_code,
        mend=lambda: _settle(service),
    )


def _settle(service: Service) -> str:
    settled: list[str] = []
    # Settling one may bring up another: a handle that has lost its last lease is released.
    for _ in range(4):
        with service.state.transaction():
            found = list(disagreements(service))
            for each in found:
                each.settle()
        settled += [each.what for each in found]
        if not found:
            break
    return f"settled: {listed(list(dict.fromkeys(settled)))}"


def disagreements(service: Service) -> Iterator[Disagreement]:
    """Find records that contradict each other; inside a transaction, where they never should.

    A claim counts only if both sides know of it: a resource whose owner doesn't know that it
    holds it can't be given back by anybody, and a handle whose resource is another's must not
    go on. So each is settled by freeing.
    """
    state, handles = service.state, service.handles
    backend = open_backend(
        LOCAL, state, settings="", lost=lambda claim_key, names: None, clock=Clock()
    )
    yield from _claims(state, backend)
    yield from _leases(state, handles, backend)
    yield from _places(state, backend)
    for kind, capacity, real in state.query(
        "SELECT type, capacity, (SELECT count(*) FROM resource WHERE resource.type = pool.type) "
        "AS real FROM pool WHERE capacity <> real"
    ):
        yield Disagreement(
            f'pool "{kind}" counts {capacity} resources and has {real}',
            _sql(state, "UPDATE pool SET capacity = ? WHERE type = ?", real, kind),
        )
    for handle in handles.active():
        if handle.state == "held" and _read_names(state, handle) != handle.names:
            yield Disagreement(
                f"{state.names_path(handle.id)} doesn't say what the handle holds",
                _staging(state, handle),
            )


def _claims(state: State, backend: Backend) -> Iterator[Disagreement]:
    for name, claim_key in state.query(
        "SELECT name, owner FROM resource WHERE owner IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM lease WHERE handle = owner AND lease.name = resource.name)"
    ):
        yield Disagreement(
            f"{name} is held by {claim_key}, which doesn't know of it",
            _freeing(backend, claim_key, name),
        )


def _leases(state: State, handles: Handles, backend: Backend) -> Iterator[Disagreement]:
    for claim_key, name in state.query(
        "SELECT handle, lease.name FROM lease LEFT JOIN handle ON id = handle "
        # What arrives from a server is on record before all of it has.
        "WHERE id IS NULL OR state = 'released' OR (state = 'acquiring' AND backend = ?)",
        LOCAL,
    ):

        def drop(claim_key: str = claim_key, name: str = name) -> None:
            backend.release(claim_key, [name])
            state.db.execute("DELETE FROM lease WHERE handle = ? AND name = ?", (claim_key, name))

        yield Disagreement(f"{claim_key} holds {name} without being a held handle", drop)
    for claim_key, name in state.query(
        "SELECT handle, lease.name FROM lease JOIN handle ON id = handle LEFT JOIN resource "
        "ON resource.name = lease.name AND resource.owner = handle "
        "WHERE backend = ? AND state = 'held' AND resource.name IS NULL",
        LOCAL,
    ):
        yield Disagreement(
            f"{claim_key} claims {name}, which isn't its own", _dropping(handles, claim_key, name)
        )
    for claim_key, name, mine, theirs in state.query(
        "SELECT handle, lease.name, lease.fence, resource.fence FROM lease JOIN resource "
        "ON resource.name = lease.name AND resource.owner = handle "
        "WHERE lease.fence <> resource.fence"
    ):
        yield Disagreement(
            f"{claim_key} shows fence {mine} for {name}, which has {theirs}",
            _sql(
                state,
                "UPDATE lease SET fence = ? WHERE handle = ? AND name = ?",
                theirs,
                claim_key,
                name,
            ),
        )
    for (claim_key,) in state.query(
        "SELECT id FROM handle WHERE backend = ? AND state = 'held' AND NOT EXISTS "
        "(SELECT 1 FROM lease WHERE handle = id)",
        LOCAL,
    ):
        yield Disagreement(f"{claim_key} is held but holds nothing", _dropping(handles, claim_key))


def _places(state: State, backend: Backend) -> Iterator[Disagreement]:
    for (claim_key,) in state.query(
        "SELECT owner FROM ticket WHERE NOT EXISTS "
        "(SELECT 1 FROM handle WHERE id = ticket.owner AND state = 'acquiring')"
    ):
        yield Disagreement(
            f"{claim_key} stands in a queue and isn't acquiring", _withdrawing(backend, claim_key)
        )
    for (claim_key,) in state.query(
        "SELECT DISTINCT handle FROM timer WHERE NOT EXISTS "
        "(SELECT 1 FROM handle WHERE id = timer.handle)"
    ):
        yield Disagreement(
            f"a release is armed for {claim_key}, which isn't there",
            _sql(state, "DELETE FROM timer WHERE handle = ?", claim_key),
        )


def _sql(state: State, statement: str, *values: object) -> Callable[[], object]:
    return lambda: state.db.execute(statement, values)


def _freeing(backend: Backend, claim_key: str, name: str) -> Callable[[], object]:
    return lambda: backend.release(claim_key, [name])


def _withdrawing(backend: Backend, claim_key: str) -> Callable[[], object]:
    return lambda: backend.withdraw(claim_key)


def _dropping(handles: Handles, claim_key: str, *names: str) -> Callable[[], object]:
    def drop() -> None:
        handle = handles.load(claim_key)
        if handle is not None and handle.state == "held":
            handles.drop(handle, names, now=boottime_seconds(), lost=True)

    return drop


def _staging(state: State, handle: Handle) -> Callable[[], object]:
    return lambda: state.stage_names(handle.id, handle.names)


def _read_names(state: State, handle: Handle) -> tuple[str, ...] | None:
    try:
        with open(state.names_path(handle.id), encoding="utf-8", errors="replace") as file:
            return tuple(file.read(1 << 20).split())
    except OSError:
        return None


def keeper(service: Service) -> Finding:
    """Is there a keeper when one is needed, and does it keep up?"""
    state = service.state
    running = keeper_process.running(state)
    log = state.path("keeper.log")
    if not service.handles.any_watched():
        who = "not running, not needed" if running is None else f"running, pid {running.pid}"
        return Finding(OK, who)
    if running is None:
        return Finding(
            WARN,
            "not running, although leases wait for it",
            f"any leasectl command starts it, doctor --fix too; why it ended: {log}",
            mend=lambda: _start_keeper(service),
        )
    now = boottime_seconds()
    overdue = [
        claim_key for claim_key, *_, due in service.handles.timers() if due < now - OVERDUE_SECONDS
    ]
    if overdue:
        return Finding(
            WARN,
            f"running, pid {running.pid}, but late with releasing {listed(overdue)}",
            f"see why in {log}",
        )
    return Finding(OK, f"running, pid {running.pid}, log in {log}")


def _start_keeper(service: Service) -> str:
    keeper_process.ensure(service.state)
    running = keeper_process.running(service.state)
    return "started it" if running is None else f"started it, pid {running.pid}"


def dead_holders(service: Service) -> Finding:
    """Are there leases of those who have died?"""
    abandoned = [
        handle for handle in service.handles.active() if service.recovery.is_abandoned(handle)
    ]
    if not abandoned:
        return Finding(OK, "none")
    return Finding(
        WARN,
        f"{counted(len(abandoned), 'handle')} of processes that have ended: {_ids(abandoned)}",
        "the keeper, or any next command, gives back what they hold",
        mend=lambda: _release(service, abandoned),
    )


def _release(service: Service, handles: Sequence[Handle]) -> str:
    names = [name for handle in handles for name in service.release(whole(handle))]
    return f"gave back what they held: {listed(names) or 'nothing'}"


def unguarded(service: Service) -> Finding:
    """Which handles would nobody ever give back?"""
    forgotten = [
        handle
        for handle in service.handles.active()
        if handle.leases
        and handle.guard is None
        and handle.waiter is None
        and handle.release_at is None
        and (handle.request.ttl_seconds is None or renews_itself(handle))
    ]
    if not forgotten:
        return Finding(OK, "every lease has a guard, a release time, or a ttl that runs out")
    return Finding(
        WARN,
        f"{counted(len(forgotten), 'handle')} that only a release ends: {_held_texts(forgotten)}",
        f"if nobody uses them any more: {_release_commands(forgotten)}",
    )


def foreign(service: Service) -> Finding:
    """Which handles belong to processes that can't be seen from here?"""
    here = own_pid_namespace()
    from_elsewhere = [
        handle
        for handle in service.handles.active()
        if any(p and p.pid_namespace != here for p in (handle.guard, handle.waiter))
        and not service.recovery.is_abandoned(handle)
    ]
    if not from_elsewhere:
        return Finding(OK, "none in another pid namespace")
    return Finding(
        WARN,
        f"{counted(len(from_elsewhere), 'handle')} guarded in another pid namespace, which can't "
        f"be seen from here: {_held_texts(from_elsewhere)}",
        f"if that container has ended: {_release_commands(from_elsewhere)}",
    )


def long_held(service: Service) -> Finding:
    """Which handles have been held for suspiciously long?"""
    since = time.time() - LONG_SECONDS
    old = [
        handle
        for handle in service.handles.active()
        if any(lease.acquire_time < since for lease in handle.leases)
    ]
    day = format_duration(LONG_SECONDS)
    if not old:
        return Finding(OK, f"none for more than {day}")
    return Finding(
        WARN,
        f"{counted(len(old), 'handle')} held for more than {day}: {_held_texts(old)}",
        f"if nobody uses them any more: {_release_commands(old)}",
    )


def files(service: Service) -> Finding:
    """Are there files that no record knows?"""
    with service.state.transaction():
        stale = list(_stale_files(service.state))
    if not stale:
        return Finding(OK, "none that no record knows")
    return Finding(
        WARN,
        f"{counted(len(stale), 'file')} that no record knows: {listed(stale)}",
        "run: leasectl doctor --fix",
        mend=lambda: _remove_stale(service.state),
    )


def _remove_stale(state: State) -> str:
    removed = []
    with state.transaction():
        for path in _stale_files(state):
            try:
                unlink(path)
            except OSError as error:
                raise StateUnwritable(f"can't remove {path}: {error.strerror}") from error
            removed.append(path)
    return f"removed {counted(len(removed), 'file')}"


def _stale_files(state: State) -> Iterator[str]:
    """Inside a transaction: nobody else is half-way through making a file."""
    known = {handle_id for (handle_id,) in state.query("SELECT id FROM handle")}
    for name in sorted(os.listdir(state.path("handles"))):
        found = _HANDLE_FILE.fullmatch(name)
        path = state.path("handles", name)
        if found is None or name in known:
            continue
        handle_id, ending = found.groups()
        if ending == ".new" or (handle_id not in known and not _is_locked(path)):
            yield path
    waiting = {pipe for (pipe,) in state.query("SELECT pipe FROM ticket")}
    running = {f"{handle_id}.run" for handle_id in known}
    for name in sorted(os.listdir(state.path("waiters"))):
        path = state.waiter_pipe(name)
        if _WAITER_FILE.fullmatch(name) and name not in waiting | running and not is_read(path):
            yield path


def _is_locked(path: str) -> bool:
    """A lock that a script still holds must keep its name."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)


def _ids(handles: Sequence[Handle]) -> str:
    return listed([handle.id for handle in handles])


def _held_texts(handles: Sequence[Handle]) -> str:
    now = time.time()
    return listed([f"{handle.id} ({_names(handle)}{_age(handle, now)})" for handle in handles])


def _names(handle: Handle) -> str:
    return listed(handle.names) or handle.state


def _age(handle: Handle, now: float) -> str:
    since = min((lease.acquire_time for lease in handle.leases), default=None)
    return "" if since is None else f", held for {format_duration(max(0.0, now - since))}"


def _release_commands(handles: Sequence[Handle]) -> str:
    return listed([f"leasectl release --handle {handle.id}" for handle in handles])
