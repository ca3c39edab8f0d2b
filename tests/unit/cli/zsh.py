"""An interactive zsh on a pseudo-terminal, to see what a press of Tab makes of a line."""

from __future__ import annotations

import os
import pty
import select
from collections.abc import Mapping
from pathlib import Path

from tests.kit.waits import eventually

START = """\
autoload -U compinit && compinit -D -u
zstyle ':completion:*' menu no
setopt nobeep no_list_ambiguous
source {script}
show() {{ print -r -- "$BUFFER" >{line}.new && mv {line}.new {line}; zle kill-whole-line }}
zle -N show
bindkey '^I' complete-word
bindkey '^X' show
PROMPT='ready> '
"""


def zsh_line(typed: str, script: Path, env: Mapping[str, str], folder: Path) -> str:
    """What stands on the line of a zsh after ``typed`` and Tab.

    Args:
        typed: What is typed.
        script: What `leasectl completion zsh` printed.
        env: Of the shell.
        folder: Where to put what it needs.
    """
    line = folder / "line"
    line.unlink(missing_ok=True)
    (folder / ".zshrc").write_text(START.format(script=script, line=line))
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-i"], {**env, "ZDOTDIR": str(folder), "TERM": "dumb"})
    try:
        _read_until(fd, b"ready> ")
        os.write(fd, typed.encode() + b"\t\x18")

        def is_answered() -> bool:
            _read_some(fd)
            return line.exists()

        eventually(is_answered, "the completed line")
        return line.read_text().rstrip("\n")
    finally:
        os.close(fd)  # which hangs it up
        os.waitpid(pid, 0)


def _read_some(fd: int) -> bytes:
    return os.read(fd, 65536) if select.select([fd], [], [], 0.02)[0] else b""


def _read_until(fd: int, wanted: bytes) -> None:
    seen = bytearray()

    def has_come() -> bool:
        seen.extend(_read_some(fd))
        return wanted in seen

    eventually(has_come, f"{wanted!r} from zsh")
