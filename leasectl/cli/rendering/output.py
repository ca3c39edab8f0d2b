"""Text or JSON on stdout, everything else on stderr."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Literal

from leasectl.errors import Interrupted, LeaseError
from leasectl.system.poll import READABLE, Interrupt, is_writable
from leasectl.system.signals import SignalTrap, current
from leasectl.text.durations import format_duration

# The resources in a pool among pools.
_DEEPEST_LISTS = 4
_ENCODED_AT_ONCE = 100
_SHOWN_AT_ONCE = 1 << 16
_PATIENCE_SECONDS = 1.0


class ReaderGone(LeaseError):
    """The reader of stdout has closed it."""


def emit(text: str) -> None:
    """Write data to stdout, all of it, now.

    Raises:
        LeaseError: It can't be written, so the user won't see it.
    """
    emit_bytes(text.encode("utf-8", "surrogateescape"))  # a path is the bytes that it is


def emit_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are; as `emit`. A signal ends it that is trapped meanwhile."""
    trap = current()
    try:
        if isinstance(trap, SignalTrap):
            trap.interrupting(lambda: _write(data))
        else:
            _write(data)
    except BrokenPipeError as error:
        raise ReaderGone("stdout was closed") from error
    except OSError as error:
        raise LeaseError(f"can't write to stdout: {error.strerror}") from error


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def emit_lines(lines: tuple[str, ...]) -> None:
    """Write one line each; nothing for none."""
    emit("".join(f"{line}\n" for line in lines))


# How `release` prints what it released.
ReleasedForm = Literal["names", "json", "nothing"]


def emit_released(names: Sequence[str], form: ReleasedForm) -> None:
    """Write the names of released resources."""
    if form == "json":
        emit_json({"released": names})
    elif form == "names":
        emit_lines(tuple(names))


def emit_json(value: object) -> None:
    """Write JSON on one line."""
    import json

    emit(json.dumps(value) + "\n")


def show(text: str) -> None:
    """Write what is only there to be looked at: a reader that has seen enough ends us quietly.

    Raises:
        Interrupted: By PIPE, as every other tool is.
        LeaseError: It can't be written.
    """
    try:
        emit(text)
    except ReaderGone:
        raise Interrupted(signal.SIGPIPE) from None


def show_json(value: object) -> None:
    """`show` JSON, on one line; in pieces: thousands at once need so much memory that it takes
    longer to get that than to fill it. An iterator is a list that is made as it is shown."""
    import json

    text, encoder = "", json.JSONEncoder(check_circular=False, default=list)
    for piece in _pieces(value, encoder.encode, _DEEPEST_LISTS):
        text += piece
        if len(text) >= _SHOWN_AT_ONCE:
            show(text)
            text = ""
    show(text + "\n")


def _pieces(value: object, encode: Callable[[object], str], depth: int) -> Iterator[str]:
    """JSON as it is written in one, with lists cut that are long and not deeper down than that."""
    if not depth or not value or not isinstance(value, (dict, list, Iterator)):
        yield encode(value)
    elif isinstance(value, dict):
        for place, (key, each) in enumerate(value.items()):
            yield f"{', ' if place else '{'}{encode(str(key))}: "
            yield from _pieces(each, encode, depth - 1)
        yield "}"
    elif isinstance(value, list) and len(value) <= _ENCODED_AT_ONCE:
        for place, each in enumerate(value):
            yield ", " if place else "["
            yield from _pieces(each, encode, depth - 1)
        yield "]"
    else:
        items, opening = iter(value), "["
        while some := list(islice(items, _ENCODED_AT_ONCE)):
            yield opening + encode(some)[1:-1]
            opening = ", "
        yield "[]" if opening == "[" else "]"


def when_due(seconds: float) -> str:
    """When that will be, for people: ``in 20m, at 14:32:05 UTC``."""
    at = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + seconds))
    return f"in {format_duration(seconds)}, at {at}"


def output_interrupts(trap: SignalTrap, end: Callable[[], None]) -> list[Interrupt]:
    """What ends a command that waits to print more.

    Args:
        trap: Of signals.
        end: Called when stdout has no reader any more; raises.
    """
    # No event is asked for: a pipe without a reader reports an error all the same.
    return [Interrupt(trap.fd, READABLE, trap.check), Interrupt(1, 0, end)]


def note(text: str) -> None:
    """Tell people something, on stderr.

    Something may be waited for, held or looked after. So a pipe that is full, or a terminal that
    was stopped, is given a second, and then it isn't said.
    """
    if not is_writable(2, _PATIENCE_SECONDS):
        return
    try:
        sys.stderr.write(f"leasectl: {text}\n")
        sys.stderr.flush()
    except OSError:
        pass
