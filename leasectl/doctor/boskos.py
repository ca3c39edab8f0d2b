"""Check a Boskos without taking anything.

What its reaper does no answer tells of, so what the address says of that is only looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.backends.boskos.connection import BoskosConnection, check_is_boskos
from leasectl.backends.boskos.requests import (
    LIKE,
    REAPED_STATES,
    BoskosAddress,
    login_headers,
    parse_boskos_url,
    sign_of_life,
    with_login,
)
from leasectl.doctor.findings import Checks, Finding, access_used, fail, ok, warn
from leasectl.http.settings import Settings
from leasectl.leases.service import Service
from leasectl.pools.counted import count
from leasectl.system.clock import Clock
from leasectl.text.durations import format_duration, format_seconds
from leasectl.text.wording import counted, listed

DEADLINE_SECONDS = 3.0


def checks(url: str, settings: Settings, environment: Mapping[str, str]) -> Checks:
    """The checks of a Boskos; when one fails, so do the rest."""
    address = parse_boskos_url(url)
    return {
        "Boskos access": lambda: access(address, settings, environment),
        "Boskos answer": lambda: answer(address, with_login(settings, environment)),
        "Boskos reaper": lambda: reaper(address),
    }


def checks_of_claims(service: Service, settings: Settings) -> Checks:
    """The check of what handles here hold there."""
    return {"Boskos leases": lambda: leases(service)}


def access(address: BoskosAddress, settings: Settings, environment: Mapping[str, str]) -> Finding:
    """Which credentials are used, and can their files be read?"""
    settings = with_login(settings, environment)
    login_headers(settings)
    who = "without a user"
    if settings.username is not None:
        who = f"as {settings.username} with the password in {settings.password_file}"
    is_secure = address.server.startswith("https:")
    return access_used(who, settings, is_secure=is_secure, by_proxy=settings.trust_env)


def answer(address: BoskosAddress, settings: Settings) -> Finding:
    """Is it there, is it a Boskos, and are we let in?"""
    clock = Clock()
    connection = BoskosConnection(address, settings, clock=clock)
    start = clock.elapsed()
    answered = connection.ask(sign_of_life(address), seconds=DEADLINE_SECONDS)
    took = f"{(clock.elapsed() - start) * 1000:.0f} ms"
    check_is_boskos(connection.url, answered)
    return ok(f"Boskos answered in {took}")


def reaper(address: BoskosAddress) -> Finding:
    """Does the address say what the reaper does, and does that know the state of our leases?"""
    if address.leased not in REAPED_STATES:
        return warn(
            f'leases are in the state "{address.leased}". A reaper ignores that state '
            "unless its --extra-source-states names it, so leases of dead holders "
            "would stay leased",
            f"check the options of the reaper beside {address.server}",
        )
    ttl = format_duration(address.reaper_seconds)
    if address.expire_seconds is None:
        return warn(
            "the address doesn't say when the reaper takes back leases that are not "
            f"renewed; leasectl assumes {ttl}, the default of its --expire",
            f"find its --expire, and add it to the address: {LIKE}",
        )
    renewed = format_seconds(address.renew_seconds)
    return ok(f"takes back leases that are not renewed for {ttl}; leasectl renews every {renewed}")


def leases(service: Service) -> Finding:
    """Does it know the leases of the handles here, and has it more of theirs?"""
    found = count(service, None).types
    held = [
        each
        for each in service.handles.active()
        if each.backend == service.backend_url and each.state == "held" and each.leases
    ]
    known = {owner.handle: owner.held for each in found for owner in each.owners}
    fewer = [each.id for each in held if known.get(each.id, 0) < len(each.leases)]
    more = [each.id for each in held if known.get(each.id, 0) > len(each.leases)]
    if fewer:
        return fail(
            f"Boskos has taken back leases of {listed(fewer)}",
            f"end the job that uses {fewer[0]}; to record the loss, run: leasectl renew {fewer[0]}",
        )
    if more:
        return warn(
            f"Boskos has leased more to {listed(more)} than the handle knows, because "
            "an answer was lost",
            "the reaper takes those leases back",
        )
    return ok(f"{counted(len(held), 'handle')} here; Boskos agrees on what they hold")
