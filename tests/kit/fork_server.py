"""Commands that have nothing left to load: each is forked from one process that has imported all.

Starting an interpreter and importing is most of what a command costs, and thousands are run. Each
of these is a process with a session, an environment, a working directory and descriptors of its
own; only its interpreter isn't fresh. One that is, is what the documented examples, the tests of
the Bash functions and those of the pyz run, and whatever a test starts with `Cli.spawn`. Programs
of the kit that tests start by the hundred are forked from it as well, and so is the keeper that a
forked command starts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NoReturn, TextIO

import leasectl
from leasectl.state import keeper_process
from tests.kit.forked_command import Command

_ROOT = Path(__file__).parents[2]
# The last in the path: what is installed goes before the source.
_SERVE = """
import sys
sys.path.append(sys.argv[1])
from tests.kit.fork_server import serve
serve(int(sys.argv[2]))
"""
# What an interpreter heeds when it starts, before anybody could tell it.
_HEEDED_AT_START = ("PYTHON", "LC_", "LANG")
_LONGEST_REQUEST = 100_000


def start(
    args: Sequence[str], *, env: Mapping[str, str], cwd: Path, forks_keeper: bool = True
) -> Command | None:
    """Start ``leasectl``.

    Args:
        args: Its arguments.
        env: Its environment.
        cwd: Where it runs.
        forks_keeper: The keeper that it starts is forked as well, instead of a program that has
            all to load.

    Returns:
        The command; None where only a fresh interpreter does what is asked for.
    """
    if _at_start(env) != _at_start(os.environ):
        return None
    if any("\0" in each for each in (*args, *env.values())):
        return None
    request = {
        "args": list(args),
        "env": {**env},
        "cwd": str(cwd),
        "forks_keeper": forks_keeper,
    }
    if len(json.dumps(request).encode()) > _LONGEST_REQUEST:
        return None
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    try:
        pid, status = _forked(request, out_end, err_end)
    finally:
        os.close(out_end)
        os.close(err_end)
    return Command(["leasectl", *args], pid, status, os.fdopen(out), os.fdopen(err))


def start_program(program: Path, args: Sequence[str]) -> Command:
    """Start a program of the kit; what it prints goes where this process prints.

    Args:
        program: Its file, which finds by itself what it imports.
        args: Its arguments.
    """
    request = {"program": str(program), "args": list(args), "env": {**os.environ}, "cwd": "/"}
    return Command([str(program), *args], *_forked(request, 1, 2))


def _forked(request: Mapping[str, object], out: int, err: int) -> tuple[int, TextIO]:
    """Have the server fork a process; returns its pid and the descriptor of its exit status."""
    words = json.dumps(request).encode()
    assert len(words) <= 2 * _LONGEST_REQUEST, "it would arrive in part"
    status, status_end = os.pipe()
    try:
        socket.send_fds(_server(), [words], [out, err, status_end])
    finally:
        os.close(status_end)
    said = os.fdopen(status)
    return int(said.readline()), said


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_HEEDED_AT_START)}


@functools.cache
def _server() -> socket.socket:
    """The way to a server that lives for as long as this process does."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-c", _SERVE, str(_ROOT), str(its.fileno())]
    # Not where the source is, so that the installed package runs.
    process = subprocess.Popen(
        argv,
        cwd="/",
        pass_fds=[its.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(fd: int) -> None:
    """Fork a command for each request, until the client is gone.

    Args:
        fd: Of the socket.
    """
    sys.path.remove(str(_ROOT))
    load_everything()
    requests = socket.socket(fileno=fd)
    # By which commands ask for a keeper.
    of_commands, to_server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked = {each.fileno(): each for each in (requests, of_commands)}
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([*asked, *running], [], [])[0]:
            if ready in running:
                pid, status = running.pop(ready)
                _tell(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(status)
                os.close(ready)
                continue
            request, fds, _, _ = socket.recv_fds(asked[ready], 2 * _LONGEST_REQUEST, 3)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                if ready == fd:
                    _become(json.loads(request), fds, to_server.fileno())
                _become_keeper(json.loads(request), fds)
            *theirs, status = fds
            running[os.pidfd_open(pid)] = pid, status
            for each in theirs:
                os.close(each)


def _tell(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # of a test that didn't wait for the end
        os.write(status, b"%d\n" % number)


def _become(request: dict[str, Any], fds: Sequence[int], to_server: int) -> NoReturn:
    """In the forked process: let go of what is the server's, and be the command."""
    out, err, status = fds
    try:
        _tell(status, os.getpid())
        os.setsid()
        os.chdir(request["cwd"])
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, to_server)
        os.closerange(to_server + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
        if request.get("forks_keeper"):
            keeper_process._fork_candidate = functools.partial(
                _fork_keeper,
                to_server,
                os.fstat(to_server).st_ino,
                keeper_process._fork_candidate,
            )
        _take_over(request["env"])
        sys.stdout = os.fdopen(1, "w", errors=sys.stdout.errors)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors=sys.stderr.errors)
        _run(request)
        _end(0)
    except SystemExit as end:
        _end(end.code)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _fork_keeper(
    to_server: int,
    inode: int,
    fork_candidate: Callable[[Sequence[str]], tuple[int, int]],
    argv: Sequence[str],
) -> tuple[int, int]:
    """In a command: as `leasectl.state.keeper_process` has it, by the server."""
    try:
        is_open = os.fstat(to_server).st_ino == inode
    except OSError:
        is_open = False
    if not is_open:  # the command went to the background, and has let go of all it had
        return fork_candidate(argv)
    told, told_end = os.pipe()
    go, go_write = os.pipe()
    request = json.dumps({"argv": list(argv), "env": keeper_process.environment()}).encode()
    with socket.socket(fileno=os.dup(to_server)) as server:
        socket.send_fds(server, [request], [go, told_end])
    os.close(told_end)
    os.close(go)
    with os.fdopen(told) as said:
        return int(said.readline()), go_write


def _become_keeper(request: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    """In the forked process: do as a candidate does, but for its program, which is loaded."""
    (go, told), execve = fds, os.execve

    def keep(path: str, argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
        os.execve = execve  # a keeper becomes one of a newer version by it
        _take_over(env)
        sys.argv = list(argv[2:])
        runpy.run_module("leasectl.keeper", run_name="__main__", alter_sys=True)
        _end(0)

    try:
        # Whoever knows it may send it a signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, keeper_process.KEEPER_SIGNALS)
        _tell(told, os.getpid())
        os.setsid()
        os.execve = keep  # type: ignore[assignment]
        keeper_process._become(request["argv"], request["env"], go)
        _end(1)
    except SystemExit as end:
        _end(end.code)
    finally:
        os._exit(1)


def _take_over(env: Mapping[str, str]) -> None:
    """Replace the environment of this process."""
    os.environ.clear()
    os.environ.update(env)
    time.tzset()


def _end(code: object) -> NoReturn:
    """End as an interpreter does that exits with that."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(int(code or 0))  # type: ignore[call-overload]


def _run(request: dict[str, Any]) -> None:
    program = request.get("program")
    if program is not None:
        sys.argv = [str(program), *request["args"]]
        runpy.run_path(str(program), run_name="__main__")
        return
    from leasectl import __main__ as command

    sys.argv = [str(command.__file__), *request["args"]]
    command.main()


# What modules of leasectl, or of those they import, load when they first need it.
_LATE = ("certifi", "ctypes", "difflib", "encodings.idna", "httpcore", "json", "pwd", "random")


@functools.cache
def load_everything() -> None:
    """Import every module of leasectl, and what some import only when they need it.

    Else a process that is killed at each of its calls into the system is also killed while it
    imports, where nothing is at stake. What is there then, no collection of garbage looks at: in a
    forked process, that would copy all of it.
    """
    for module in pkgutil.walk_packages(leasectl.__path__, "leasectl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
