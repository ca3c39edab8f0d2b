"""Run a command line; turn an error into one line and an exit code.

Plain command lines of frequent commands are parsed here, without click. Plain is: no option but
``--backend`` before the command, each option by its whole name, its value in the next word or
behind a ``=``, none twice that takes one value, and nothing that begins with a dash but names of
options. Click parses all other lines, and refuses wrong ones.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from signal import SIGINT
from typing import Any, NoReturn

from leasectl.cli.described import Param, PlainCommand
from leasectl.cli.loaded import command_is_loaded, little_is_garbage
from leasectl.errors import (
    BackendUnreachable,
    Interrupted,
    InvalidRequest,
    LeaseError,
    is_out_of_files,
    out_of_files,
)
from leasectl.system import callers, threads
from leasectl.system.signals import die_of, interrupt_at_once
from leasectl.text.wording import printable

# Commands whose plain command lines are read without click; each is a `described.PlainCommand`.
SHORT = ("acquire", "release", "reacquire", "renew", "cat")


def main() -> NoReturn:
    """Run the command line of this process and exit as the contract says."""
    callers.take()
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
    """Keep files of ours from getting the number of a closed stdin, stdout or stderr.

    Output would end up in such a file. Writing to a closed stdout still fails, as it should: the
    user won't see the answer.
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
    except (Interrupted, KeyboardInterrupt) as interrupted:
        signum = interrupted.signum if isinstance(interrupted, Interrupted) else SIGINT
        _fail_in_eval(args, 128 + signum)
        die_of(signum)
        return 128 + signum
    except LeaseError as error:
        code, message = error.exit_code, _text_of(error)
    except Exception as error:
        if is_out_of_files(error):
            refused = out_of_files(error)
            code, message = refused.exit_code, str(refused)
        elif os.environ.get("LEASECTL_DEBUG"):
            _fail_in_eval(args, 1)
            raise
        else:
            detail = f"{type(error).__name__}: {error}"
            code = 1
            message = f"unexpected failure: {detail}; set LEASECTL_DEBUG=1 to see where"
    _note(message)
    _fail_in_eval(args, code)
    return code


def _fail_in_eval(args: list[str], code: int) -> None:
    """Let ``eval "$(leasectl acquire … --output env)"`` fail, which doesn't see our exit code.

    The command line may be what is wrong, so its words are looked at as they are.
    """
    words = " ".join(args[args.index("--output") :][:2]) if "--output" in args else ""
    is_env = words == "--output env" or "--output=env" in args
    if is_env and _with_backend_behind(args)[0] == "acquire":
        from leasectl.cli.rendering.handle_output import print_failure

        with contextlib.suppress(LeaseError):  # stdout is closed
            print_failure(code)


def _do(args: list[str]) -> int:
    """Do what a command line says; returns the exit status."""
    name, *others = _with_backend_behind(args) or [""]
    if name in SHORT and "_LEASECTL_COMPLETE" not in os.environ:
        command = importlib.import_module(f"leasectl.cli.commands.{name}").command
        parsed = parse(command, others)
        if parsed is not None:
            command_is_loaded()
            little_is_garbage()
            result = command.function(**parsed)
            return result if isinstance(result, int) else 0
    from leasectl.cli.root import run

    return run(args)


def _with_backend_behind(args: list[str]) -> list[str]:
    """Move a ``--backend`` that stands before the command behind it."""
    n = 2 if args[:1] == ["--backend"] else 1 if args and args[0].startswith("--backend=") else 0
    return [*args[n : n + 1], *args[:n], *args[n + 1 :]]


def _text_of(error: LeaseError) -> str:
    """An error's text; where a server can't be reached or meant, with what points there."""
    if not isinstance(error, (BackendUnreachable, InvalidRequest)):
        return str(error)
    from leasectl.cli.serve_env import with_remark

    return with_remark(error)


def _note(message: str) -> None:
    """Print one line that can be shown on any terminal, whatever the message holds."""
    from leasectl.cli.rendering.output import note

    note(printable(" ".join(message.split()), longest=4000))


def parse(command: PlainCommand, args: Sequence[str]) -> dict[str, Any] | None:
    """Read a command line.

    Args:
        command: Of which.
        args: What follows its name.

    Returns:
        The values of all variables; None where it is for click to read, or to refuse.
    """
    try:
        return _parse(command.params, args)
    except (ValueError, LeaseError):
        return None


def _parse(params: Sequence[Param], args: Sequence[str]) -> dict[str, Any]:
    texts, words = _sort(params, args)
    if words and not any(each.is_word for each in params):
        raise ValueError
    values: dict[str, Any] = {}
    for each in params:
        if not each.is_word:
            values[each.variable] = _value(each, texts.get(each.variable))
    for each in params:
        if each.is_word:
            _settle(each, values, words)
    return values


def _sort(params: Sequence[Param], args: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Tell options and their texts, of each all that were given, from words that stand alone."""
    by_name = {name: each for each in params if not each.is_word for name in each.names}
    texts: dict[str, list[str]] = {}
    words = []
    left = iter(args)
    for arg in left:
        if not arg.startswith("-"):
            words.append(arg)
            continue
        name, equals, text = arg.partition("=") if arg.startswith("--") else (arg, "", "")
        found = by_name.get(name)
        if found is None or (found.settings.get("is_flag") and equals):
            raise ValueError
        given = texts.setdefault(found.variable, [])
        if found.settings.get("is_flag"):
            continue
        if not equals:
            text = next(left, "-")
            if text.startswith("-"):
                raise ValueError
        given.append(text)
        if len(given) > 1 and not found.settings.get("multiple"):
            raise ValueError
    return texts, words


def _value(param: Param, texts: list[str] | None) -> Any:
    """The value of an option."""
    settings = param.settings
    if settings.get("is_flag"):
        return texts is not None
    if settings.get("multiple"):
        return tuple(_read(param, text) for text in texts or ())
    if texts:
        return _read(param, texts[0])
    default = settings.get("default")
    return _read(param, default) if isinstance(default, str) else default


def _read(param: Param, text: str) -> Any:
    reads = param.settings.get("type")
    return text if reads is None else reads(text)


def _settle(param: Param, values: dict[str, Any], words: Sequence[str]) -> None:
    """Store a positional word as the option that it stands for."""
    variable, settings = param.settings["stands_for"], param.settings
    several = settings.get("nargs") == -1
    value = values[variable]
    if words:
        if value not in (None, ()) or (len(words) > 1 and not several):
            raise ValueError
        read = [_read(param, text) for text in words]
        values[variable] = tuple(read) if several else read[0]
    elif settings.get("needed") and value in (None, ()):
        raise ValueError
