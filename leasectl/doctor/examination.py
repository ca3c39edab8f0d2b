"""Run all checks in order, and repair what they find.

Checks only look. A finding that can be mended safely brings along how; it is mended only when
that is asked for, and then looked at again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Protocol

from leasectl.backends.boskos.backend import BoskosBackend
from leasectl.backends.etcd import EtcdBackend
from leasectl.backends.kinds import LOCAL, Context, Kind, check_url, kind_of
from leasectl.backends.kubernetes import KubernetesBackend
from leasectl.backends.proxy.backend import ProxyBackend
from leasectl.doctor import (
    boskos,
    etcd,
    findings,
    holders,
    kubernetes,
    lease_proxy,
    machine,
    records,
    state_files,
)
from leasectl.doctor.findings import FAIL, OK, Check, Finding, failure
from leasectl.doctor.keeper import keeper
from leasectl.doctor.machine import Surroundings
from leasectl.doctor.records import events
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.http.settings import Settings
from leasectl.leases.service import Service
from leasectl.state.database import expect_to_read_all
from leasectl.state.directory import State
from leasectl.text.wording import printable_url

# What a series of findings returns: whether none of them failed.
Series = Generator[Finding, None, bool]


# Python 3.9 may be built for a kernel that has none.
_PIDFD_OPEN: Callable[[int], int] | None = getattr(os, "pidfd_open", None)


class Examiner(Protocol):
    """What `doctor` looks at in the server of a backend."""

    def checks(self, url: str, settings: Settings, environment: Mapping[str, str]) -> list[Check]:
        """The checks that need no state directory; when one fails, so do the rest."""

    def checks_of_claims(self, service: Service, settings: Settings) -> list[Check]:
        """The checks of what a state directory holds in the backend its service has chosen."""


class Probe:
    """Examines a backend of which only its class is known.

    Args:
        kind: The class.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def checks(self, url: str, settings: Settings, environment: Mapping[str, str]) -> list[Check]:
        def answer() -> Finding:
            located = self._kind.locate(url, settings, environment)
            probe = self._kind.open_probe(Context(url, located))
            if probe is None:
                return Finding(OK, "has no server to be asked")
            probe()
            return Finding(OK, f"{printable_url(url)} works")

        return [Check(self._kind.title, answer)] if self._kind.remote else []

    def checks_of_claims(self, service: Service, settings: Settings) -> list[Check]:
        return []


# The backends of whose servers more is looked at than whether they work.
_EXAMINERS: Mapping[Kind, Examiner] = {
    EtcdBackend: etcd,
    KubernetesBackend: kubernetes,
    ProxyBackend: lease_proxy,
    BoskosBackend: boskos,
}


class Examination:
    """All checks, in an order in which each may rely on those before it.

    Args:
        around: Where to look.
        fix: Mend what can be mended safely, and say so in the finding.
        flock: Takes and frees locks; tests give a broken one that excludes no process.
        pidfd_open: Opens a pidfd; tests give a broken one.
    """

    def __init__(
        self,
        around: Surroundings,
        *,
        fix: bool,
        flock: Callable[[int, int], None] = fcntl.flock,
        pidfd_open: Callable[[int], int] | None = _PIDFD_OPEN,
    ) -> None:
        self._around = around
        self._fix = fix
        self._flock = flock
        self._pidfd_open = pidfd_open

    def findings(self) -> Iterator[Finding]:
        """Make all checks that can be made, one after the other."""
        directory = self._around.directory
        yield from self._all(self._of_the_machine())
        # When one fails, what comes after would fail likewise.
        server_usable = yield from self._until_failure(self._of_the_server())
        # Locks are tried with a file, which must not be made in a directory that was refused.
        if not (yield from self._all(self._of_the_directory())):
            return
        if not (yield from self._all([self._of_flock()])) or not os.path.isdir(directory):
            return
        lock = Check("lock", lambda: state_files.state_lock(directory))
        if (yield from self._until_failure([lock])):
            yield from self._of_what_is_recorded(with_server=server_usable)

    def _of_the_machine(self) -> list[Check]:
        around = self._around
        return [
            Check("version", machine.version),
            Check("backend", lambda: machine.backend(around)),
            Check("lease proxy", lambda: machine.lease_proxy(around)),
            Check("secret files", lambda: machine.secret_files(around)),
            Check("/proc", machine.proc),
            Check("pidfd", lambda: machine.pidfd(self._pidfd_open)),
            Check("SHARED_DIR", lambda: machine.shared_dir(around.caller.shared_dir)),
        ]

    def _of_the_server(self) -> list[Check]:
        examiner = self._examiner()
        if examiner is None:
            return []
        around = self._around
        return examiner.checks(around.backend_url, around.settings, around.environment)

    def _of_the_directory(self) -> list[Check]:
        directory = self._around.directory
        return [
            Check("state directory", lambda: state_files.state_directory(directory)),
            Check("file system", lambda: machine.file_system(directory)),
        ]

    def _of_flock(self) -> Check:
        directory = self._around.directory
        return Check("flock", lambda: machine.file_locks(directory, self._flock))

    def _of_what_is_recorded(self, *, with_server: bool) -> Iterator[Finding]:
        directory = self._around.directory
        path = os.path.join(directory, "state.db")
        if not os.path.exists(path) and not os.path.exists(f"{path}-wal"):
            yield Finding(
                OK, "none yet; the first acquire or pool command creates it", name="database"
            )
            return
        try:
            state = State.open(directory)
        except LeaseError as error:
            yield failure("database", error)
            return
        with contextlib.closing(state):
            expect_to_read_all(state.db)
            database = Check("database", lambda: state_files.database(state))
            if not (yield from self._until_failure([database])):
                return
            service = Service(state, Context(LOCAL, self._around.settings, self._around.caller))
            temporary = self._around.environment.get("TMPDIR") or "/tmp"  # as the Bash functions
            yield from self._all(_of_the_records(service, temporary))
            examiner = self._examiner()
            if with_server and examiner is not None:
                yield from self._of_the_claims(state, examiner)

    def _of_the_claims(self, state: State, examiner: Examiner) -> Iterator[Finding]:
        around = self._around
        try:
            kind = kind_of(around.backend_url)
            settings = kind.locate(around.backend_url, around.settings, around.environment)
        except LeaseError as error:  # gone since it was looked at
            yield failure("backend", error)
            return
        service = Service(state, Context(around.backend_url, settings, around.caller))
        yield from self._all(examiner.checks_of_claims(service, settings))

    def _examiner(self) -> Examiner | None:
        """Return what examines the chosen backend's server; None if there is no such backend."""
        with contextlib.suppress(InvalidRequest):
            kind = kind_of(check_url(self._around.backend_url))
            return _EXAMINERS.get(kind) or Probe(kind)
        return None

    def _all(self, checks: Iterable[Check]) -> Series:
        """Make every check."""
        sound = True
        for check in checks:
            finding = self._made(check)
            sound = sound and finding.status != FAIL
            yield finding
        return sound

    def _until_failure(self, checks: Iterable[Check]) -> Series:
        """Make checks up to the first that fails."""
        for check in checks:
            finding = self._made(check)
            yield finding
            if finding.status == FAIL:
                return False
        return True

    def _made(self, check: Check) -> Finding:
        """Make one check, and mend what it finds if that is asked for."""
        finding = _made(check)
        if not self._fix or finding.mend is None:
            return finding
        try:
            fixed = finding.mend()
        except LeaseError as error:
            return finding._replace(status=FAIL, advice=f"couldn't be fixed: {error}")
        return _made(check)._replace(fixed=fixed)


def _of_the_records(service: Service, temporary: str) -> list[Check]:
    return [
        Check("records", lambda: records.agreement(service)),
        Check("keeper", lambda: keeper(service)),
        Check("dead holders", lambda: holders.dead_holders(service)),
        Check("unguarded", lambda: holders.unguarded(service)),
        Check("foreign guards", lambda: holders.foreign_guards(service)),
        Check("held for long", lambda: holders.held_for_long(service)),
        Check("reclaims", lambda: records.ready_to_be_taken(service)),
        Check("memberships", lambda: holders.misplaced_here(service)),
        Check("queues", lambda: records.suspended(service)),
        Check("circular waits", lambda: findings.circular(service)),
        Check("works", lambda: findings.left_here(service)),
        Check("events", lambda: events(service.state)),
        Check("files", lambda: state_files.unknown_files(service.state, temporary)),
    ]


def _made(check: Check) -> Finding:
    """Make one check, whatever comes in between."""
    try:
        return check.make()._replace(name=check.name)
    except LeaseError as error:
        return failure(check.name, error)
