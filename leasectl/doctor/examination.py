"""What `doctor` finds out: about the machine, the state directory, and what its records say.

Checks only look. A finding that can be mended safely brings along how; it is mended only when
that is asked for, and then looked at again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from typing import Callable, NamedTuple

from leasectl.backends.opening import check_url
from leasectl.doctor import machine as machine_checks
from leasectl.doctor import records as record_checks
from leasectl.doctor.findings import FAIL, OK, WARN, Check, Finding
from leasectl.engines.etcd.address import is_etcd
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.http.settings import Settings, encode_settings
from leasectl.leases.service import Service
from leasectl.leases.targets import Caller
from leasectl.state.directory import State
from leasectl.text.printable import printable

# Of the ways to fail, the worst first; all others are like 1.
_WORST_FIRST = (65, 66, 73, 69, 77, 64, 1)


class Surroundings(NamedTuple):
    """What the environment of the command says.

    Args:
        directory: The state directory.
        backend_url: The backend that was chosen.
        backend_reason: What chose it.
        caller: On whose behalf commands act here.
        proxy_variables: The variables of the lease proxy that are set.
        settings: How to talk to a server.
    """

    directory: str
    backend_url: str
    backend_reason: str
    caller: Caller
    proxy_variables: tuple[tuple[str, str], ...] = ()
    settings: Settings = Settings()


class Examination:
    """All checks, in an order in which each may count on those before it.

    Args:
        surroundings: Where to look.
        flock: Takes and frees locks; tests put one here that doesn't exclude.
        pidfd_open: Likewise.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        *,
        flock: Callable[[int, int], None] = fcntl.flock,
        pidfd_open: Callable[[int], int] | None = getattr(os, "pidfd_open", None),
    ) -> None:
        self._surroundings = surroundings
        self._flock = flock
        self._pidfd_open = pidfd_open
        self._cluster_usable = self._uses_etcd()

    def findings(self, *, fix: bool) -> Iterator[Finding]:
        """Make all checks that can be made, one after the other.

        Args:
            fix: Mend what can be mended safely, and say so in the finding.
        """
        directory = self._surroundings.directory
        yield from self._each(self._checks_of_the_machine(), fix=fix)
        for finding in self._each(self._checks_of_the_cluster(), fix=fix):
            yield finding
            if finding.status == FAIL:  # and what comes after would fail likewise
                self._cluster_usable = False
                break
        usable = True
        for finding in self._each(self._checks_of_the_directory(), fix=fix):
            usable = usable and finding.status != FAIL
            yield finding
        if not usable or not os.path.isdir(directory):
            return
        lock = Check("lock", lambda: record_checks.lock(directory))
        for finding in self._each([lock], fix=fix):
            yield finding
            if finding.status == FAIL:
                return
        yield from self._of_the_records(fix=fix)

    def _checks_of_the_machine(self) -> list[Check]:
        around = self._surroundings
        return [
            Check("version", machine_checks.version),
            Check("backend", self._backend),
            Check("lease proxy", self._proxy_variables),
            Check("/proc", machine_checks.proc),
            Check("pidfd", lambda: machine_checks.pidfd(self._pidfd_open)),
            Check("SHARED_DIR", lambda: machine_checks.shared_dir(around.caller.shared_dir)),
        ]

    def _checks_of_the_cluster(self) -> list[Check]:
        if not self._cluster_usable:
            return []
        from leasectl.doctor import etcd as cluster_checks

        return cluster_checks.checks(self._surroundings.backend_url, self._surroundings.settings)

    def _uses_etcd(self) -> bool:
        url = self._surroundings.backend_url
        with contextlib.suppress(InvalidRequest):
            return is_etcd(check_url(url))
        return False

    def _checks_of_the_directory(self) -> list[Check]:
        directory = self._surroundings.directory
        return [
            Check("state directory", lambda: machine_checks.state_directory(directory)),
            Check("file system", lambda: machine_checks.file_system(directory)),
            Check("flock", lambda: machine_checks.exclusion(directory, self._flock)),
        ]

    def _of_the_records(self, *, fix: bool) -> Iterator[Finding]:
        directory = self._surroundings.directory
        path = os.path.join(directory, "state.db")
        if not os.path.exists(path) and not os.path.exists(f"{path}-wal"):
            yield Finding(OK, "none yet; the first command makes it", name="database")
            return
        try:
            state = State.open(directory)
        except LeaseError as error:
            yield _failure("database", error)
            return
        try:
            service = self._service(state, "local:")
            database = Check("database", lambda: record_checks.database(state))
            for finding in self._each([database], fix=fix):
                yield finding
                if finding.status == FAIL:
                    return
            yield from self._each(record_checks.checks(service), fix=fix)
            if self._cluster_usable:
                from leasectl.doctor.etcd import checks_of_claims

                service = self._service(state, self._surroundings.backend_url)
                of_claims = checks_of_claims(service, self._surroundings.settings)
                yield from self._each(of_claims, fix=fix)
        finally:
            state.close()

    def _service(self, state: State, backend_url: str) -> Service:
        around = self._surroundings
        settings = encode_settings(around.settings)
        return Service(state, backend_url=backend_url, caller=around.caller, settings=settings)

    def _each(self, checks: Iterable[Check], *, fix: bool) -> Iterator[Finding]:
        for check in checks:
            finding = _made(check)
            if fix and finding.mend is not None:
                try:
                    fixed = finding.mend()
                except LeaseError as error:
                    yield finding._replace(status=FAIL, advice=f"couldn't be fixed: {error}")
                    continue
                finding = _made(check)._replace(fixed=fixed)
            yield finding

    def _backend(self) -> Finding:
        around = self._surroundings
        what = f"{_without_credentials(around.backend_url)}, chosen by {around.backend_reason}"
        try:
            check_url(around.backend_url)
        except InvalidRequest as error:
            return Finding(FAIL, what, str(error), exit_code=error.exit_code)
        return Finding(OK, what)

    def _proxy_variables(self) -> Finding:
        around = self._surroundings
        if not around.proxy_variables:
            return Finding(OK, "no LEASE_PROXY_* variable is set")
        what = ", ".join(
            f"{name}={_without_credentials(value)}" for name, value in around.proxy_variables
        )
        overridden = "LEASE_PROXY_SERVER_URL" in dict(around.proxy_variables) and (
            around.backend_reason != "LEASE_PROXY_SERVER_URL"
        )
        if overridden:
            return Finding(
                WARN,
                f"{what}; not used, because of {around.backend_reason}",
                "leave out --backend and unset LEASECTL_BACKEND to use the lease proxy",
            )
        return Finding(OK, what)


def exit_code(findings: Iterable[Finding]) -> int:
    """What `doctor` ends with: 0, or the code of the worst failure."""
    codes = {finding.exit_code for finding in findings if finding.status == FAIL}
    known = [code for code in _WORST_FIRST if code in codes]
    return known[0] if known else int(bool(codes))


def _made(check: Check) -> Finding:
    """Make one check, whatever comes in between."""
    try:
        return check.make()._replace(name=check.name)
    except LeaseError as error:
        return _failure(check.name, error)


def _failure(name: str, error: LeaseError) -> Finding:
    """A message ends with what to do next."""
    what, _, advice = str(error).rpartition("; ")
    if not what:
        what, advice = advice, ""
    return Finding(FAIL, what, advice or None, exit_code=error.exit_code, name=name)


def _without_credentials(url: str) -> str:
    """A URL without the user and password that it may carry."""
    scheme, slashes, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return printable(f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}", longest=200)
