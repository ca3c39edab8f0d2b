"""The variables of `serve --print-env`, and whether that server still runs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from typing import Literal

from leasectl.backends.unanswered import NotSent
from leasectl.errors import InvalidRequest, LeaseError
from leasectl.leases.opening import SERVE_PID, ended_server
from leasectl.text.wording import followed_by, printable_url

Shell = Literal["sh", "bash", "zsh", "fish"]


def exports(variables: Iterable[tuple[str, str]], shell: Shell) -> str:
    """Commands that export variables, a line each, each ended so that lines may be joined."""
    if shell == "fish":
        return "".join(f"set -gx {name} {_quoted_for_fish(value)};\n" for name, value in variables)
    return "".join(f"export {name}={shlex.quote(value)};\n" for name, value in variables)


def _quoted_for_fish(text: str) -> str:
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"


_VARIABLES = ("LEASECTL_BACKEND", "LEASE_PROXY_SERVER_URL")


def with_remark(error: LeaseError) -> str:
    """What an error says, and which variable points to a server that can't be reached or meant."""
    if isinstance(error, InvalidRequest):
        named = _variable_in(str(error), quote='"')
        return followed_by(error, f"{named} has this value") if named else str(error)
    reason: BaseException | None = error
    while reason is not None and not isinstance(reason, NotSent):
        reason = reason.__cause__
    named = None if reason is None else _variable_in(str(reason))
    if named is None:
        return str(error)
    pid = ended_server()
    ended = f", and process {pid} ({SERVE_PID}) has ended" if pid is not None else ""
    return followed_by(error, f"{named} points to this server{ended}")


def _variable_in(text: str, quote: str = "") -> str | None:
    """The first variable that is set and whose value is in a text, between such quotes."""
    for name in _VARIABLES:
        value = os.environ.get(name)
        if value and any(f"{quote}{each}{quote}" in text for each in (value, printable_url(value))):
            return name
    return None
