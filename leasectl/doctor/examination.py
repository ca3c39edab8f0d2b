"""Run all checks in order, and repair what they find.

Checks only look. A finding that can be mended safely brings along how; it is mended only when
that is asked for, and then looked at again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Generator, Iterator, Mapping

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
from leasectl.doctor.findings import FAIL, Checks, Finding, failure, ok
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


# Checks of a server that need no state directory, and checks of what a state directory holds there.
# A server without checks of its own is only asked whether it works.
_SERVER_CHECKS: Mapping[Kind, Callable[[str, Settings, Mapping[str, str]], Checks]] = {
    EtcdBackend: etcd.checks,
    KubernetesBackend: kubernetes.checks,
    ProxyBackend: lease_proxy.checks,
    BoskosBackend: boskos.checks,
}
_CLAIM_CHECKS: Mapping[Kind, Callable[[Service, Settings], Checks]] = {
    EtcdBackend: etcd.checks_of_claims,
    KubernetesBackend: kubernetes.checks_of_claims,
    BoskosBackend: boskos.checks_of_claims,
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
        around, directory = self._around, self._around.directory
        yield from self._all(
            {
                "version": machine.version,
                "backend": lambda: machine.backend(around),
                "lease proxy": lambda: machine.lease_proxy(around),
                "secret files": lambda: machine.secret_files(around),
                "/proc": machine.proc,
                "pidfd": lambda: machine.pidfd(self._pidfd_open),
                "SHARED_DIR": lambda: machine.shared_dir(around.context.caller.shared_dir),
            }
        )
        # When one fails, what comes after would fail likewise.
        server_usable = yield from self._until_failure(self._of_the_server())
        # Locks are tried with a file, which must not be made in a directory that was refused.
        is_sound = yield from self._all(
            {
                "state directory": lambda: state_files.state_directory(directory),
                "file system": lambda: machine.file_system(directory),
            }
        )
        if not is_sound:
            return
        flock = {"flock": lambda: machine.file_locks(directory, self._flock)}
        if not (yield from self._all(flock)) or not os.path.isdir(directory):
            return
        if (yield from self._all({"lock": lambda: state_files.state_lock(directory)})):
            yield from self._of_what_is_recorded(with_server=server_usable)

    def _of_the_server(self) -> Checks:
        context, kind = self._around.context, self._kind()
        if kind is None:
            return {}
        checks = _SERVER_CHECKS.get(kind)
        if checks is not None:
            return checks(context.url, context.settings, self._around.environment)
        return {kind.title: lambda: self._probe(kind)} if kind.remote else {}

    def _probe(self, kind: Kind) -> Finding:
        context = self._located(kind)
        probe = kind.open_probe(context)
        if probe is None:
            return ok("this backend has no server")
        probe()
        return ok(f"{printable_url(context.url)} works")

    def _of_what_is_recorded(self, *, with_server: bool) -> Iterator[Finding]:
        directory = self._around.directory
        path = os.path.join(directory, "state.db")
        if not os.path.exists(path) and not os.path.exists(f"{path}-wal"):
            yield ok("none yet; the first acquire or pool command creates it")._replace(
                name="database"
            )
            return
        try:
            state = State.open(directory)
        except LeaseError as error:
            yield failure(error)._replace(name="database")
            return
        with contextlib.closing(state):
            expect_to_read_all(state.db)
            if not (yield from self._all({"database": lambda: state_files.database(state)})):
                return
            service = Service(state, self._around.context._replace(url=LOCAL))
            temporary = self._around.environment.get("TMPDIR") or "/tmp"  # as the Bash functions
            yield from self._all(_of_the_records(service, temporary))
            kind = self._kind()
            if with_server and kind is not None and kind in _CLAIM_CHECKS:
                yield from self._of_the_claims(state, kind)

    def _of_the_claims(self, state: State, kind: Kind) -> Iterator[Finding]:
        try:
            context = self._located(kind)
        except LeaseError as error:  # gone since it was looked at
            yield failure(error)._replace(name="backend")
            return
        yield from self._all(_CLAIM_CHECKS[kind](Service(state, context), context.settings))

    def _located(self, kind: Kind) -> Context:
        """Return the context of the chosen backend, with the server that its URL means here."""
        context = self._around.context
        settings = kind.locate(context.url, context.settings, self._around.environment)
        return context._replace(settings=settings)

    def _kind(self) -> Kind | None:
        """Return the chosen backend; None if there is no such backend."""
        with contextlib.suppress(InvalidRequest):
            return kind_of(check_url(self._around.context.url))
        return None

    def _all(self, checks: Checks) -> Series:
        """Make every check."""
        is_sound = True
        for name in checks:
            finding = self._make(name, checks[name])
            is_sound = is_sound and finding.status != FAIL
            yield finding
        return is_sound

    def _until_failure(self, checks: Checks) -> Series:
        """Make checks up to the first that fails."""
        for name in checks:
            if not (yield from self._all({name: checks[name]})):
                return False
        return True

    def _make(self, name: str, check: Callable[[], Finding]) -> Finding:
        """Make one check, and mend what it finds if that is asked for."""

        def make() -> Finding:
            try:
                return check()._replace(name=name)
            except LeaseError as error:
                return failure(error)._replace(name=name)

        finding = make()
        if not self._fix or finding.mend is None:
            return finding
        try:
            fixed = finding.mend()
        except LeaseError as error:
            return finding._replace(status=FAIL, advice=f"couldn't be fixed: {error}")
        return make()._replace(fixed=fixed)


def _of_the_records(service: Service, temporary: str) -> Checks:
    return {
        "records": lambda: records.agreement(service),
        "keeper": lambda: keeper(service),
        "dead holders": lambda: holders.dead_holders(service),
        "unguarded": lambda: holders.unguarded(service),
        "foreign guards": lambda: holders.foreign_guards(service),
        "held for long": lambda: holders.held_for_long(service),
        "reclaims": lambda: records.ready_to_be_taken(service),
        "memberships": lambda: holders.misplaced_here(service),
        "queues": lambda: records.suspended(service),
        "circular waits": lambda: findings.circular(service),
        "once records": lambda: findings.left_here(service),
        "events": lambda: events(service.state),
        "files": lambda: state_files.unknown_files(service.state, temporary),
    }
