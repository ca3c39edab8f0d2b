"""What the environment of a command says: the backend, the lease proxy's variables, SHARED_DIR."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from leasectl.backends.opening import check_url
from leasectl.doctor.findings import FAIL, OK, WARN, Finding
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.http.settings import Settings
from leasectl.leases.caller import Caller
from leasectl.state import shared_leases
from leasectl.text.printable import printable_url
from leasectl.text.wording import counted
from leasectl.typed.tuples import NamedTuple


class Surroundings(NamedTuple):
    """What the environment of the command says.

    Args:
        directory: The state directory.
        backend_url: The backend that was chosen.
        backend_reason: What chose it.
        caller: On whose behalf commands act here.
        proxy_variables: The variables of the lease proxy that are set.
        settings: How to talk to a server.
        environment: All variables, for what finds a server there.
    """

    directory: str
    backend_url: str
    backend_reason: str
    caller: Caller
    proxy_variables: tuple[tuple[str, str], ...] = ()
    settings: Settings = Settings()
    environment: Mapping[str, str] = MappingProxyType({})


def backend(around: Surroundings) -> Finding:
    """Which backend was chosen, by what, and is there such a one?"""
    what = f"{printable_url(around.backend_url, longest=200)}, chosen by {around.backend_reason}"
    try:
        check_url(around.backend_url)
    except InvalidRequest as error:
        return Finding(FAIL, what, str(error), exit_code=error.exit_code)
    return Finding(OK, what)


def lease_proxy(around: Surroundings) -> Finding:
    """Which ``LEASE_PROXY_*`` variables are set, and do they count?"""
    if not around.proxy_variables:
        return Finding(OK, "no LEASE_PROXY_* variable is set")
    what = ", ".join(
        f"{name}={printable_url(value, longest=200)}" for name, value in around.proxy_variables
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


def shared_dir(directory: str | None) -> Finding:
    """``SHARED_DIR``, where scope ``test`` lists its names."""
    if directory is None:
        return Finding(OK, "not set; only --scope test needs it")
    try:
        names = shared_leases.listed(directory)
    except LeaseError as error:
        what, _, advice = str(error).partition("; ")
        return Finding(FAIL, what, advice or "mend it", exit_code=error.exit_code)
    if not os.access(directory, os.W_OK):
        return Finding(
            WARN,
            f"{directory} can't be written: --scope test won't work",
            "make it writable, or use scope step",
        )
    return Finding(OK, f"{directory}; leases lists {counted(len(names), 'name')}")
