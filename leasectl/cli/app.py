"""Run a command line; turn an error into one line and an exit code.

Whatever is raised becomes one line and an exit code.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import NoReturn

from leasectl.cli.loaded import command_is_loaded, little_is_garbage
from leasectl.errors import (
    BackendUnreachable,
    Interrupted,
    InvalidRequest,
    LeaseError,
    is_out_of_files,
    out_of_files,
)
from leasectl.system import inherited, threads
from leasectl.system.signals import die_of, interrupt_at_once
from leasectl.text.wording import printable

# Commands whose plain command lines are read without click; each is a `described.PlainCommand`.
SHORT = ("acquire", "release", "reacquire", "renew", "cat")


def main() -> NoReturn:
    """Run the command line of this process and exit as the contract says."""
    inherited.take()
    threads.report_by(_note)
    _name_state_directory_absolutely()
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


def _name_state_directory_absolutely() -> None:
    """Let LEASECTL_STATE_DIR mean the same directory to a command that starts elsewhere."""
    directory = os.environ.get("LEASECTL_STATE_DIR")
    if directory and not directory.startswith("/"):
        with contextlib.suppress(OSError):  # the working directory is gone; refused when opened
            os.environ["LEASECTL_STATE_DIR"] = os.path.abspath(directory)


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
        _fail_in_eval(args, 128 + interrupted.signum)
        die_of(interrupted.signum)
        return 128 + interrupted.signum
    except LeaseError as error:
        code = _fail(_text_of(error), error.exit_code)
    except KeyboardInterrupt:
        import signal

        _fail_in_eval(args, 130)
        die_of(signal.SIGINT)
        return 130
    except Exception as error:
        if is_out_of_files(error):
            refused = out_of_files(error)
            code = _fail(str(refused), refused.exit_code)
        elif os.environ.get("LEASECTL_DEBUG"):
            _fail_in_eval(args, 1)
            raise
        else:
            detail = f"{type(error).__name__}: {error}"
            code = _fail(f"unexpected failure: {detail}; set LEASECTL_DEBUG=1 to see where", 1)
    _fail_in_eval(args, code)
    return code


def _fail_in_eval(args: list[str], code: int) -> None:
    """Let ``eval "$(leasectl acquire … --output env)"`` fail, which doesn't see our exit code.

    The command line may be what is wrong, so its words are looked at as they are.
    """
    words = " ".join(args[args.index("--output") :][:2]) if "--output" in args else ""
    if args[:1] == ["acquire"] and (words == "--output env" or "--output=env" in args):
        from leasectl.cli.shown.handle_output import print_failure

        with contextlib.suppress(LeaseError):  # stdout is closed
            print_failure(code)


def _do(args: list[str]) -> int:
    """Do what a command line says; returns the exit status."""
    if args and args[0] in SHORT and "_LEASECTL_COMPLETE" not in os.environ:
        from leasectl.cli.short_way import parse

        command = importlib.import_module(f"leasectl.cli.commands.{args[0]}").command
        parsed = parse(command, args[1:])
        if parsed is not None:
            command_is_loaded()
            little_is_garbage()
            result = command.function(**parsed)
            return result if isinstance(result, int) else 0
    from leasectl.cli.root import run

    return run(args)


def _text_of(error: LeaseError) -> str:
    """An error's text; where a server can't be reached or meant, with what points there."""
    if not isinstance(error, (BackendUnreachable, InvalidRequest)):
        return str(error)
    from leasectl.cli.serve_env import with_remark

    return with_remark(error)


def _fail(message: str, code: int) -> int:
    _note(message)
    return code


def _note(message: str) -> None:
    """Print one line that can be shown on any terminal, whatever the message holds."""
    from leasectl.cli.shown.output import note

    note(printable(" ".join(message.split()), longest=4000))
