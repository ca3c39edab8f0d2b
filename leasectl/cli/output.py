"""Writing: data to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys

from leasectl.errors import Interrupted, LeaseError


class ReaderGone(LeaseError):
    """Whoever read our stdout has closed it."""


def emit(text: str) -> None:
    """Write data to stdout, all of it, now.

    Raises:
        LeaseError: It can't be written; whoever asked won't see it.
    """
    emit_bytes(text.encode("utf-8", "surrogateescape"))  # a path is the bytes that it is


def emit_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are; as `emit`."""
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError as error:
        raise ReaderGone("nobody reads stdout any more") from error
    except OSError as error:
        raise LeaseError(f"can't write to stdout: {error.strerror}") from error


def emit_lines(lines: tuple[str, ...]) -> None:
    """Write one line each; nothing for none."""
    emit("".join(f"{line}\n" for line in lines))


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
        import signal

        raise Interrupted(signal.SIGPIPE) from None


def show_json(value: object) -> None:
    """`show` JSON, on one line."""
    import json

    show(json.dumps(value, check_circular=False) + "\n")


def when_due(seconds: float) -> str:
    """When that will be, for people: ``in 20m, at 14:32:05 UTC``."""
    import time

    from leasectl.text.durations import format_duration

    at = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + seconds))
    return f"in {format_duration(seconds)}, at {at}"


def note(text: str) -> None:
    """Tell people something, on stderr."""
    try:
        sys.stderr.write(f"leasectl: {text}\n")
        sys.stderr.flush()
    except OSError:
        pass
