"""What a shell is told of a server that went to the background: text to evaluate."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from leasectl.typed.hints import Literal

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
