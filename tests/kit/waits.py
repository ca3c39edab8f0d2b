"""Every wait in tests: on a condition, a future, an event, a thread, a process or a descriptor.

A wait ends on a condition and gives up late, after one time for all of them. A machine with all
tests on it stalls for seconds, and a test that fails for that tells nothing. A wait that gives up
shows where all threads are and which processes of the test live. `tests/conftest.py` stops a run in
which several gave up: something hangs that others wait for, too.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import select
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import Future, wait
from pathlib import Path
from types import FrameType
from typing import Callable, NoReturn, TypeVar

from tests.kit.forked_command import Command

T = TypeVar("T")

PATIENCE_SECONDS = 300.0

# What waits that gave up in this process waited for.
given_up: list[str] = []


def eventually(condition: Callable[[], T], what: str = "") -> T:
    """Wait until a condition is truthy and return what it says."""
    start = time.monotonic()
    while True:
        began = time.monotonic()
        found = condition()
        if found:
            return found
        now = time.monotonic()
        if now >= start + PATIENCE_SECONDS:
            give_up(what or str(condition))
        # A waiter mustn't take the time that those need for whom it waits.
        time.sleep(min(max(0.005, 2 * (now - began), (now - start) / 8), 0.05))


def result_of(future: Future[T]) -> T:
    """Wait for a future and return its result, or raise its error."""
    if not wait([future], PATIENCE_SECONDS).done:
        give_up(f"the result of {future}")
    return future.result()


def wait_set(event: threading.Event) -> None:
    """Wait until an event is set."""
    if not event.wait(PATIENCE_SECONDS):
        give_up(f"{event}")


def join(thread: threading.Thread) -> None:
    """Wait for the end of a thread."""
    thread.join(PATIENCE_SECONDS)
    if thread.is_alive():
        give_up(f"the end of {thread}")


def next_in(items: queue.SimpleQueue[T]) -> T:
    """Wait for the next item of a queue."""
    try:
        return items.get(timeout=PATIENCE_SECONDS)
    except queue.Empty:
        give_up("the next item of a queue")


def wait_readable(*fds: int, what: str = "") -> list[int]:
    """Wait until one of some descriptors can be read; return those that can."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    found = poll.poll(PATIENCE_SECONDS * 1000)
    if not found:
        give_up(what or f"descriptors {fds}")
    return [fd for fd, _ in found]


def end_of(process: subprocess.Popen[str] | subprocess.Popen[bytes] | Command) -> int:
    """Wait for the end of a process; a negative code is the signal that ended it."""
    try:
        return process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        give_up(f"the end of process {process.pid}: {process.args!r}")


def outputs_of(process: subprocess.Popen[str] | Command) -> tuple[str, str]:
    """Wait for the end of a process and of its output; return stdout and stderr."""
    try:
        return process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        give_up(f"the end of process {process.pid} and its output: {process.args!r}")


def give_up(what: str) -> NoReturn:
    """Fail after a wait, and show where threads and processes are."""
    given_up.append(what)
    raise AssertionError(f"not within {PATIENCE_SECONDS:g}s: {what}\n{whereabouts()}")


def whereabouts() -> str:
    """Where all threads of this process are, and which processes live that the test started."""
    names = {each.ident: each.name for each in threading.enumerate()}
    stacks = (
        f"-- thread {names.get(ident, ident)}\n{_stack(frame)}"
        for ident, frame in sys._current_frames().items()
    )
    return "\n".join(
        [*stacks, "-- processes: pid, parent, state, waits in, command", *_processes()]
    )


def _stack(frame: FrameType) -> str:
    """The calls in a thread, without pytest's own."""
    calls = traceback.extract_stack(frame)
    ours = [each for each in calls if not re.search("/(_pytest|pluggy)/", each.filename)]
    return "".join(traceback.format_list(ours))


def _processes() -> list[str]:
    """Descendants of this process, and processes that the current test started."""
    test = f"PYTEST_CURRENT_TEST={os.environ.get('PYTEST_CURRENT_TEST')}".encode()
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    of_test = {os.getpid()}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            pid = int(folder.name)
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
            waits_in = (folder / "wchan").read_text()
            parents[pid] = int(parent)
            lines[pid] = f"{pid} {parent} {state} {waits_in} {command[:200]}"
            if test in (folder / "environ").read_bytes().split(b"\0"):
                of_test.add(pid)
    before = 0
    while len(of_test) > before:
        before = len(of_test)
        of_test |= {pid for pid, parent in parents.items() if parent in of_test}
    return [line for pid, line in sorted(lines.items()) if pid in of_test]
