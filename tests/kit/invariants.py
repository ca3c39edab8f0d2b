"""What must be true of a state directory after any command, after any kill.

Read with SQL and with file system calls alone: no code of leasectl says here what it thinks is
true, but for whether a process lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from leasectl.model import parse_process
from leasectl.state.event import Event
from leasectl.system.process import liveness, own_pid_namespace
from tests.kit.story import Telling

Rows = list[sqlite3.Row]


class Claim(NamedTuple):
    """A claim on a resource, as its store records it.

    Args:
        name: The resource.
        owner: The handle that holds it.
        fence: As granted.
        ticket: As granted.
        grant: As granted.
    """

    name: str
    owner: str
    fence: int
    ticket: int
    grant: int


class Told:
    """What was read of a state directory's events, so that the next look goes on from there."""

    def __init__(self) -> None:
        self.made: set[str] = set()
        self.telling = Telling()


class _Reader:
    """A state directory, read while its lock is held."""

    def __init__(
        self, directory: Path, db: sqlite3.Connection, elsewhere: Sequence[Claim], told: Told
    ) -> None:
        self.directory = directory
        self.told = told
        self._db = db
        here = self.rows(
            "SELECT name, owner, fence, ticket, grant_number FROM resource WHERE owner IS NOT NULL"
        )
        self.claims = [*(Claim(*row) for row in here), *elsewhere]
        self.handles = {str(row["id"]): row for row in self.rows("SELECT * FROM handle")}
        self.leases: dict[str, Rows] = {}
        for row in self.rows("SELECT * FROM lease ORDER BY fence"):
            self.leases.setdefault(row["handle"], []).append(row)

    def rows(self, sql: str) -> Rows:
        return self._db.execute(sql).fetchall()

    def one(self, sql: str) -> Any:
        return self._db.execute(sql).fetchone()[0]


def broken_invariants(
    directory: Path, elsewhere: Sequence[Claim] = (), *, told: Told | None = None
) -> list[str]:
    """Say what is wrong with a state directory; nothing, when all is well.

    Args:
        directory: The state directory.
        elsewhere: What its handles hold of pools that aren't in it.
        told: Of who looks at it again and again; the same each time.
    """
    uri = f"file:{directory}/state.db?mode=ro"
    lock = os.open(directory / "state.lock", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
            db.row_factory = sqlite3.Row
            reader = _Reader(directory, db, elsewhere, told or Told())
            return [
                *_resources(reader),
                *_records(reader),
                *_names_files(reader),
                *_tickets(reader),
                *_timers(reader),
                *_pools(reader),
                *_fences(reader),
                *_pipes(reader),
                *_keeper(reader),
                *_story(reader),
                *_note(lock),
            ]
    finally:
        os.close(lock)


def _is_dead(process: str | None) -> bool:
    return process is not None and liveness(parse_process(process)) == "dead"


def _resources(reader: _Reader) -> Iterator[str]:
    """Every resource is free, or held by a living or unguarded holder whose record says so."""
    for claim in reader.claims:
        name, owner = claim.name, claim.owner
        handle = reader.handles.get(owner)
        if handle is None:
            yield f"{name} is held by {owner}, of which there is no record"
            continue
        if handle["state"] != "held":
            yield f"{name} is held by {owner}, which is {handle['state']}"
        for role in ("guard", "waiter"):
            if _is_dead(handle[role]):
                yield f"{name} is held by {owner}, whose {role} is dead"
        recorded = [
            (lease["fence"], lease["ticket"], lease["grant_number"])
            for lease in reader.leases.get(owner, ())
            if lease["name"] == name
        ]
        if recorded != [claim[2:]]:
            yield f"{name} is held by {owner}, whose record says {recorded} of it"


def _records(reader: _Reader) -> Iterator[str]:
    """No record claims what it doesn't hold, and none has a dead waiter."""
    owners = {claim.name: claim.owner for claim in reader.claims}
    for handle_id, leases in reader.leases.items():
        if handle_id not in reader.handles:
            yield f"there are leases of {handle_id}, of which there is no record"
        for lease in leases:
            if owners.get(lease["name"]) != handle_id:
                yield f"{handle_id} claims {lease['name']}, which {owners.get(lease['name'])} holds"
    for handle_id, handle in reader.handles.items():
        count = len(reader.leases.get(handle_id, ()))
        if (handle["state"] == "held") != (count > 0):
            yield f"{handle_id} is {handle['state']} with {count} leases"
        if handle["state"] == "acquiring" and (not handle["waiter"] or _is_dead(handle["waiter"])):
            yield f"{handle_id} is acquiring, and nobody waits"


def _names_files(reader: _Reader) -> Iterator[str]:
    """A names file says what the record says, and there is one for each handle that was told."""
    files = {path.name: path.read_text() for path in (reader.directory / "handles").iterdir()}
    for handle_id in sorted({*files} - {*reader.handles}):
        yield f"handles/{handle_id} belongs to no record"
    for handle_id, handle in reader.handles.items():
        if handle["state"] == "acquiring" and handle["acquisition"] == 1:
            continue
        if handle["state"] == "held" and handle["waiter"] and handle_id not in files:
            continue  # it wasn't announced yet
        wanted = "\n".join(lease["name"] for lease in reader.leases.get(handle_id, ()))
        if files.get(handle_id) != wanted:
            yield f"handles/{handle_id} says {files.get(handle_id)!r}, the record says {wanted!r}"


def _tickets(reader: _Reader) -> Iterator[str]:
    """Everybody in a queue lives and is acquiring."""
    for row in reader.rows("SELECT * FROM ticket"):
        who = f"ticket {row['number']} of {row['owner']}"
        handle = reader.handles.get(row["owner"])
        if _is_dead(row["process"]):
            yield f"{who} is a dead process's"
        elif handle is None or handle["state"] != "acquiring":
            yield f"{who} is there, but the handle is {handle and handle['state']}"
    for row in reader.rows(
        "SELECT * FROM ranked_ticket LEFT JOIN ticket USING (type, number) "
        "WHERE ticket.number IS NULL"
    ):
        yield f"{row['owner']} has a place in the order of {row['type']}, and no ticket"
    for row in reader.rows(
        "SELECT ticket.* FROM ticket JOIN (SELECT type, max(number) AS last FROM ranked_ticket "
        "GROUP BY type) AS ranked USING (type) LEFT JOIN ranked_ticket AS own USING (type, number) "
        "WHERE own.number IS NULL AND number < last"
    ):
        yield f"ticket {row['number']} of {row['owner']} has no place in the order"


def _timers(reader: _Reader) -> Iterator[str]:
    """A delayed release is for what a handle holds now."""
    for row in reader.rows("SELECT * FROM timer"):
        handle = reader.handles.get(row["handle"])
        if handle is None or handle["state"] != "held":
            yield f"a timer is armed for {row['handle']}, which holds nothing"
        elif handle["acquisition"] != row["acquisition"]:
            yield f"a timer is armed for acquisition {row['acquisition']} of {row['handle']}"


def _pools(reader: _Reader) -> Iterator[str]:
    counted = "(SELECT COUNT(*) FROM resource WHERE resource.type = pool.type)"
    for row in reader.rows(f"SELECT type FROM pool WHERE capacity <> {counted}"):
        yield f"pool {row['type']} miscounts its resources"
    if reader.one("SELECT COALESCE(MAX(fence), 0) FROM resource") > reader.one(
        "SELECT fence FROM meta"
    ):
        yield "a resource has a fence that was not given yet"


def _fences(reader: _Reader) -> Iterator[str]:
    """The next fence is larger than all that were drawn."""
    with open(reader.directory / "state.lock", "rb") as file:
        file.seek(8192 - 64)
        _, drawn, end = struct.unpack("<8sQQ", file.read(24))
    reserved = reader.one("SELECT fence FROM meta")
    follows = drawn if end == reserved else max(drawn, reserved)
    if reader.one("SELECT COALESCE(MAX(fence), 0) FROM resource") > follows:
        yield "a resource has a fence that may be drawn again"


def _pipes(reader: _Reader) -> Iterator[str]:
    """No more named pipes than there are waiters and runners."""
    waiting = {row["pipe"] for row in reader.rows("SELECT pipe FROM ticket")}
    for path in (reader.directory / "waiters").iterdir():
        handle_id, _, role = path.name.rpartition(".")
        handle = reader.handles.get(handle_id)
        if role == "run":
            if handle is None or _is_dead(handle["runner"]):
                yield f"waiters/{path.name} is no living runner's"
        elif path.name not in waiting and not _is_read(path):
            # Waiters have it a moment before their ticket, and a moment after.
            yield f"waiters/{path.name} is no waiter's"


def _is_read(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return not path.exists()
    return True


def _keeper(reader: _Reader) -> Iterator[str]:
    watched = reader.rows("SELECT id FROM handle WHERE watched = 1 AND state <> 'released'")
    keepers = {row["pid_namespace"]: row for row in reader.rows("SELECT * FROM keeper")}
    keeper = keepers.get(own_pid_namespace())
    if watched and (keeper is None or _is_dead(keeper["process"])):
        yield f"{len(watched)} handles need a keeper, and there is none"


def _story(reader: _Reader) -> Iterator[str]:
    """What the events of a pool come to is what is held and waited for, no more and no less.

    Of pools that were made while events were written, and whose first are still kept.
    """
    made, telling = reader.told.made, reader.told.telling
    of_new = f"backend = '' AND number > {telling.number}"
    told = [*map(_event, reader.rows(f"SELECT * FROM event WHERE {of_new} ORDER BY number"))]
    made.update(event.type for event in told if event.kind == "pool made")
    story = telling.go_on(event for event in told if event.type in made)
    yield from story.broken
    held = {
        row["name"]: row["owner"]
        for row in reader.rows("SELECT name, type, owner FROM resource WHERE owner IS NOT NULL")
        if row["type"] in made
    }
    for name in sorted({*held, *story.held}):
        if held.get(name) != story.held.get(name):
            yield f"{name} is {held.get(name)}'s, and by the events {story.held.get(name)}'s"
    waiting = {
        (row["type"], row["number"])
        for row in reader.rows("SELECT type, number FROM ticket")
        if row["type"] in made
    }
    for ticket in sorted(waiting ^ story.waiting):
        yield f"ticket {ticket} is in {'the queue' if ticket in waiting else 'the events'} alone"


def _event(row: sqlite3.Row) -> Event:
    return Event(
        number=row["number"],
        time=row["time"],
        kind=row["kind"],
        type=row["type"],
        names=tuple(row["names"].split(",")) if row["names"] else (),
        handle=row["handle"],
        ticket=row["ticket"],
        grant=row["grant_number"],
        wait_seconds=row["wait_seconds"],
    )


def _note(lock: int) -> Iterator[str]:
    if os.pread(lock, 1, 0) == b"+":
        yield "a names file is only half changed"
