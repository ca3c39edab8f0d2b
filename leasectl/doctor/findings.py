"""The findings of checks, and words that several checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from leasectl.engines.local import audit
from leasectl.errors import LeaseError, StateUnwritable
from leasectl.http.settings import Settings
from leasectl.http.tls import client_context
from leasectl.leases.on_demand import remove_unused
from leasectl.leases.service import Service
from leasectl.pools import admin
from leasectl.pools.circular_waits import circular_waits
from leasectl.text.naming import is_reserved
from leasectl.text.wording import counted

Status = Literal["ok", "warn", "fail"]
OK: Status = "ok"
WARN: Status = "warn"
FAIL: Status = "fail"

# Of the ways to fail, the worst first; all others are like 1.
_WORST_FIRST = (65, 66, 73, 69, 77, 64, 1)
ELSEWHERE = "choose another directory with LEASECTL_STATE_DIR"


class Finding(NamedTuple):
    """What one check found.

    Args:
        status: ``ok``; ``warn`` when it may become a problem; ``fail`` when something won't work.
        what: What was found.
        advice: What to do about it.
        exit_code: Of a failure; one of those of `leasectl.errors`.
        fixed: What was mended.
        name: Of the check.
        mend: Mends it and says what it did; None when it can't be mended safely, or is fine.
    """

    status: Status
    what: str
    advice: str | None = None
    exit_code: int = 1
    fixed: str | None = None
    name: str = ""
    mend: Callable[[], str] | None = None


# What `doctor` checks, by what it is called.
Checks = Mapping[str, Callable[[], Finding]]


def ok(what: str) -> Finding:
    """Return the finding of a check that found nothing wrong."""
    return Finding(OK, what)


def warn(what: str, advice: str, *, mend: Callable[[], str] | None = None) -> Finding:
    """Return a finding that may become a problem."""
    return Finding(WARN, what, advice, mend=mend)


def fail(
    what: str,
    advice: str | None = None,
    *,
    exit_code: int = 1,
    mend: Callable[[], str] | None = None,
) -> Finding:
    """Return a finding with which something won't work."""
    return Finding(FAIL, what, advice, exit_code, mend=mend)


def unwritable(what: str, advice: str) -> Finding:
    """The failure of a directory that can't hold the state."""
    return fail(what, advice, exit_code=StateUnwritable.exit_code)


def failure(error: LeaseError) -> Finding:
    """The failure of a check that an error ended; its message ends with what to do next."""
    what, _, advice = str(error).rpartition("; ")
    if not what:
        what, advice = advice, ""
    return fail(what, advice or None, exit_code=error.exit_code)


def exit_code(findings: Iterable[Finding]) -> int:
    """What `doctor` ends with: 0, or the code of the worst failure."""
    codes = {finding.exit_code for finding in findings if finding.status == FAIL}
    known = [code for code in _WORST_FIRST if code in codes]
    return known[0] if known else int(bool(codes))


def left_here(service: Service) -> Finding:
    """Which embedded pools of `once` are left, although no process uses them?"""
    return _left_behind(service, audit.unused_pools(service.state))


def left_on_server(service: Service) -> Finding:
    """The same of a server's."""
    pools = service.pools.pools()
    return _left_behind(service, [each.type for each in pools if not each.held and not each.queue])


def _left_behind(service: Service, unused: Sequence[str]) -> Finding:
    left = [each for each in unused if is_reserved(each)]
    if not left:
        return ok("no leftover records of leasectl once")

    def mend() -> str:
        for each in left:
            remove_unused(service.backend, each)
        return f"removed the records of {counted(len(left), 'work')}"

    return warn(
        f"leftover records of leasectl once: {counted(len(left), 'work')} that no process runs",
        "harmless: the next request uses them; to remove them: leasectl doctor --fix",
        mend=mend,
    )


def access_used(
    who: str, settings: Settings, *, is_secure: bool, by_proxy: bool = False
) -> Finding:
    """Return what is used on the way to a server.

    Raises:
        LeaseError: The files that the settings name can't be used.
    """
    parts = [who]
    if is_secure:
        client_context(settings)
        parts.append(f"trusting {settings.ca_file or 'the CAs of this system'}")
        parts.append(f"showing {settings.cert_file or 'no certificate'}")
    else:
        parts.append("without TLS")
    if by_proxy:
        parts.append("using http_proxy, https_proxy and no_proxy")
    return ok(", ".join(parts))


def circular(service: Service) -> Finding:
    """Which requests wait for each other's leases?"""
    found = circular_waits(admin.as_recorded(service))
    if not found:
        return ok("no requests wait for each other's leases")
    return warn(
        "; ".join(map(str, found)),
        "end one of these jobs, or release a lease that one of them holds",
    )
