"""Fork processes, and see their ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from leasectl.model import Process
from leasectl.system import afterwards, process
from tests.kit.support import CI_MARKERS
from tests.kit.waits import wait_readable

_running: set[int] = set()


def end_all() -> None:
    """KILL what still runs; in a test that passes, nothing does."""
    for pid in list(_running):
        os.kill(pid, signal.SIGKILL)
        ending(pid)


def fork(work: Callable[[], object]) -> int:
    """Run something in a process of its own; its exit code is 0 when it returned.

    The caller must have no database open: SQLite's connections don't survive a fork.
    """
    pid = os.fork()
    if pid:
        _running.add(pid)
        return pid
    code = 1
    try:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(signum, signal.SIG_DFL)
        # What a test before this left to be done was for its servers, which may be gone: whoever
        # asks them waits for seconds.
        afterwards._left = None
        work()
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def ending(pid: int) -> int:
    """Wait for a forked process; its exit code, or minus the signal that ended it.

    One that doesn't end is ended, by ABRT, for which pytest has it show where all its threads are.
    """
    pidfd = os.pidfd_open(pid)
    try:
        wait_readable(pidfd, what=f"the end of forked process {pid}")
    except AssertionError as error:
        print(error, file=sys.stderr)
        os.kill(pid, signal.SIGABRT)
        os.kill(pid, signal.SIGCONT)
    finally:
        os.close(pidfd)
    _running.discard(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def leasectl(directory: Path, output: Path, *args: str) -> None:
    """Become ``leasectl`` with these arguments; to be called in a forked process.

    Its stdout and stderr go to the files ``<output>`` and ``<output>.err``.
    """
    from leasectl.cli.app import main

    os.chdir(directory.parent)
    os.environ["LEASECTL_STATE_DIR"] = str(directory)
    for name in ("LEASECTL_BACKEND", "LEASE_PROXY_SERVER_URL", "JOB_NAME", "BUILD_ID", *CI_MARKERS):
        os.environ.pop(name, None)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(output, flags, 0o600), 1)
    os.dup2(os.open(f"{output}.err", flags, 0o600), 2)
    sys.stdout = os.fdopen(os.dup(1), "w")
    sys.stderr = os.fdopen(os.dup(2), "w")
    sys.argv = ["leasectl", *args]
    main()


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """End the processes of a failed test, in each module that imports this name."""
    yield
    end_all()


@pytest.fixture
def child() -> Iterator[Process]:
    """One that does nothing; it is gone at the end of the test."""
    pid = fork(signal.pause)
    name = process.identify(pid)
    yield name
    if process.liveness(name) == "alive":
        kill(name)


def kill(child: Process) -> None:
    """KILL one and see it gone."""
    os.kill(child.pid, signal.SIGKILL)
    ending(child.pid)
