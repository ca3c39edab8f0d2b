"""The command line of a process: its command, run by the short way or by click's, and how it ends.

Whatever is raised becomes one line and an exit code.
"""

from __future__ import annotations

import importlib
import os
import sys

from leasectl.cli.described import note_said
from leasectl.cli.loaded import command_is_loaded, little_is_garbage
from leasectl.errors import (
    BackendUnreachable,
    Interrupted,
    InvalidRequest,
    LeaseError,
    is_out_of_files,
    out_of_files,
)
from leasectl.system.signals import (
    die_of,
    heed_children,
    interrupt_at_once,
)
from leasectl.text.printable import printable
from leasectl.typed.hints import NoReturn

# Commands whose plain command lines are read without click; each is a `described.PlainCommand`.
SHORT = ("acquire", "release", "reacquire", "renew", "cat")


def main() -> NoReturn:
    """Run the command line of this process and exit as the contract says."""
    heed_children()
    _occupy_standard_streams()
    code = _run(sys.argv[1:])
    interrupt_at_once()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or 1
    afterwards = sys.modules.get("leasectl.system.afterwards")
    if afterwards is not None:  # most commands leave nothing, and are spared the import
        afterwards.finish()
    # Nothing is left to be done at exit, and tearing the interpreter down takes longer than
    # most commands do.
    os._exit(code)


def _occupy_standard_streams() -> None:
    """Where stdin, stdout or stderr are closed, see that no file of ours gets their number.

    What is printed would end up in it. Writing to a closed stdout still fails, as it should:
    whoever asked won't see the answer.
    """
    for fd, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _run(args: list[str]) -> int:
    try:
        return _do(args)
    except Interrupted as interrupted:
        die_of(interrupted.signum)
        return 128 + interrupted.signum
    except LeaseError as error:
        return _fail(_text_of(error), error.exit_code)
    except KeyboardInterrupt:
        import signal

        die_of(signal.SIGINT)
        return 130
    except Exception as error:
        if is_out_of_files(error):
            refused = out_of_files(error)
            return _fail(str(refused), refused.exit_code)
        if os.environ.get("LEASECTL_DEBUG"):
            raise
        detail, how = f"{type(error).__name__}: {error}", "set LEASECTL_DEBUG=1 to see where"
        if isinstance(error, ImportError) and os.environ.get("PYTHONPATH"):
            how = f"PYTHONPATH may name another version of that: try without it, or {how}"
        return _fail(f"unexpected failure: {detail}; {how}", 1)


def _do(args: list[str]) -> int:
    """Do what a command line says; returns the exit status."""
    if args and args[0] in SHORT and "_LEASECTL_COMPLETE" not in os.environ:
        from leasectl.cli.short_way import parse

        command = importlib.import_module(f"leasectl.cli.commands.{args[0]}").command
        parsed = parse(command, args[1:])
        if parsed is not None:
            command_is_loaded()
            little_is_garbage()
            note_said(parsed.said)
            result = command.function(**parsed.values)
            return result if isinstance(result, int) else 0
    from leasectl.cli.root import run

    return run(args)


def _text_of(error: LeaseError) -> str:
    """An error's text; where a server can't be reached or meant, with what points there."""
    if not isinstance(error, (BackendUnreachable, InvalidRequest)):
        return str(error)
    from leasectl.cli.gone_server import with_remark

    return with_remark(error)


def _fail(message: str, code: int) -> int:
    from leasectl.cli.shown.output import note

    # One line that can be shown on any terminal, whatever the message holds.
    note(printable(" ".join(message.split()), longest=4000))
    return code
