"""What commands need of the environment, beside what the library reads there (`leases.opening`)."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from leasectl.backends.kinds import Context, kind_of
from leasectl.cli.rendering.output import note
from leasectl.leases import opening
from leasectl.leases.opening import caller, choose_backend, release_seconds, settings
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.state.directory import State

# Open until the process ends: whoever closes a database last writes its whole log back, and a
# command that has nothing more to say is not to take that time.
_opened: list[State] = []


def open_service(backend: str | None = None, **how: Any) -> Service:
    """Open the service of a command, with warnings on stderr; see `opening.open_service`."""
    service = opening.open_service(backend, **{"warn": note, **how})
    _opened.append(service.state)
    return service


def given_environment() -> dict[str, str]:
    """The environment of this process as it was given, for commands that it starts.

    Where no locale is set Python adds an LC_CTYPE for itself (PEP 538), by which a command would
    count characters where its script counts bytes.
    """
    environ = dict(os.environ)
    if "LC_CTYPE" in environ:
        with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as file:
            if not any(each.startswith(b"LC_CTYPE=") for each in file.read().split(b"\0")):
                del environ["LC_CTYPE"]
    return environ


def check_request(request: Request, wait_seconds: float | None, backend: str | None) -> None:
    """Refuse what is wrong with the command line and the environment, before anything is tried.

    Args:
        request: What is wanted.
        wait_seconds: For how long it may wait; None for no limit.
        backend: What ``--backend`` says.

    Raises:
        InvalidRequest: It can't be meant.
    """
    from leasectl.leases import request as requests

    url = choose_backend(backend).url
    requests.check_request(request, wait_seconds, Context(url, caller=caller()))
    release_seconds()
    settings(url)


def may_do_without(backend: str | None, *, optional: bool) -> bool:
    """Tell whether to go on without what can't be had: it is optional, or leases nothing anyway.

    Args:
        backend: What ``--backend`` says, of a kind that there is.
        optional: What ``--optional`` says.
    """
    return optional or kind_of(choose_backend(backend).url).grants_nothing
