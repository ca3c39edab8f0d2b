"""The variables of `serve --print-env`, and whether that server still runs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from typing import Literal

from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.protocol import ACQUIRE
from leasectl.backends.unanswered import NotSent
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError, NotFound
from leasectl.http.settings import Settings
from leasectl.system.clock import Clock
from leasectl.system.process import identify
from leasectl.text.wording import followed_by, printable_url

Shell = Literal["sh", "bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("sh", "bash", "zsh", "fish")

# The process of the server that a shell has started, for `kill`.
SERVE_PID = "LEASECTL_SERVE_PID"


def exports(variables: Iterable[tuple[str, str]], shell: Shell) -> str:
    """Commands that export variables, a line each, each ended so that lines may be joined."""
    if shell == "fish":
        return "".join(f"set -gx {name} {_quoted_for_fish(value)};\n" for name, value in variables)
    return "".join(f"export {name}={shlex.quote(value)};\n" for name, value in variables)


def _quoted_for_fish(text: str) -> str:
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"


_PROBE_SECONDS = 2.0
_VARIABLES = ("LEASECTL_BACKEND", "LEASE_PROXY_SERVER_URL")


def check_served(url: str, settings: Settings) -> None:
    """Find out whether the server that this shell uses has ended.

    Args:
        url: Of `LEASE_PROXY_SERVER_URL`.
        settings: How to talk to it.

    Raises:
        BackendUnreachable: Its process has ended, and no server answers there: waiting won't help.
    """
    pid = _ended_server()
    if pid is None:
        return
    connection = Connection(url, settings, clock=Clock())
    try:
        connection.look(ACQUIRE, seconds=_PROBE_SECONDS)
    except NotSent:
        raise BackendUnreachable(
            f"leasectl serve at {printable_url(url, longest=200)} is gone: process {pid} "
            f"({SERVE_PID}) has ended; LEASE_PROXY_SERVER_URL still points there: unset it, or "
            'start another server with: eval "$(leasectl serve --print-env)"'
        ) from None
    except LeaseError:
        return  # somebody is there


def with_remark(error: LeaseError) -> str:
    """What an error says, and which variable points to a server that can't be reached or meant."""
    if isinstance(error, InvalidRequest):
        named = _variable_in(str(error), quote='"')
        return followed_by(error, f"it is set by {named}") if named else str(error)
    reason: BaseException | None = error
    while reason is not None and not isinstance(reason, NotSent):
        reason = reason.__cause__
    named = None if reason is None else _variable_in(str(reason))
    if named is None:
        return str(error)
    pid = _ended_server()
    ended = f", and process {pid} ({SERVE_PID}) has ended" if pid is not None else ""
    return followed_by(error, f"{named} points there{ended}")


def _variable_in(text: str, quote: str = "") -> str | None:
    """The first variable that is set and whose value is in a text, between such quotes."""
    for name in _VARIABLES:
        value = os.environ.get(name)
        if value and any(f"{quote}{each}{quote}" in text for each in (value, printable_url(value))):
            return name
    return None


def _ended_server() -> str | None:
    """The process of the server that this shell was told of, if it has ended."""
    pid = os.environ.get(SERVE_PID, "")
    if not (pid.isascii() and pid.isdigit() and 0 < int(pid) < 1 << 31):
        return None
    try:
        os.kill(int(pid), 0)
        identify(int(pid))
    except (ProcessLookupError, NotFound):  # a zombie, where nobody reaps it, has ended as well
        return pid
    except (OSError, LeaseError):
        return None
    return None
