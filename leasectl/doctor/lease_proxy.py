"""Check a lease proxy without taking anything."""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.protocol import ACQUIRE
from leasectl.backends.proxy.status import LONGEST_STATUS_BYTES, STATUS
from leasectl.backends.unanswered import words_of
from leasectl.doctor.findings import Checks, Finding, access_used, fail, ok
from leasectl.errors import BackendUnreachable
from leasectl.http.messages import Answer
from leasectl.http.settings import Settings, read_token
from leasectl.system.clock import Clock

DEADLINE_SECONDS = 3.0
_METHOD_NOT_ALLOWED = 405


def checks(url: str, settings: Settings, environment: Mapping[str, str]) -> Checks:
    """The checks of a lease proxy; when one fails, so do the rest."""
    clock = Clock()
    connection = Connection(url, settings, clock=clock, longest_bytes=LONGEST_STATUS_BYTES)
    return {
        "proxy access": lambda: access(url, settings),
        "proxy answer": lambda: protocol(connection, url, clock),
        "proxy token": lambda: token(connection, settings, clock),
    }


def access(url: str, settings: Settings) -> Finding:
    """Which credentials are used, and can their files be read?"""
    who = "without a token"
    if settings.token_file:
        read_token(settings.token_file)
        who = f"with the token in {settings.token_file}"
    is_secure = url.startswith("https:")
    return access_used(who, settings, is_secure=is_secure, by_proxy=settings.trust_env)


def protocol(connection: Connection, url: str, clock: Clock) -> Finding:
    """Is it there, and does it speak the protocol? Its path for leases takes no GET."""
    answer, took = _look(connection, ACQUIRE, clock)
    if answer.status == _METHOD_NOT_ALLOWED:
        return ok(f"a lease proxy answered in {took}")
    return fail(
        f"not a working lease proxy (answered in {took}): {words_of(url, answer)}",
        "check the address",
        exit_code=BackendUnreachable.exit_code,
    )


def token(connection: Connection, settings: Settings, clock: Clock) -> Finding:
    """Are we let in? Only `leasectl serve` has a path that tells without leasing."""
    answer, took = _look(connection, STATUS, clock)
    if answer.status == 200:
        said = "accepted" if settings.token_file else "no token set, and the server needs none"
        return ok(f"{said}; leasectl serve listed its pools in {took}")
    if settings.token_file:
        return ok("not checked: ci-operator's proxy needs no token")
    return ok("no token set; ci-operator's proxy needs none")


def _look(connection: Connection, path: str, clock: Clock) -> tuple[Answer, str]:
    """What is answered to a GET, and how long that took."""
    start = clock.elapsed()
    answer = connection.look(path, seconds=DEADLINE_SECONDS)
    return answer, f"{(clock.elapsed() - start) * 1000:.0f} ms"
