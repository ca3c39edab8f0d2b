"""leasectl.state.pipes: what is left of named pipes, and what may not be taken away."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil

from leasectl.model import Handle, Request
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.named_pipe import listen
from leasectl.state.pipes import tidy, unused
from leasectl.system.poll import is_readable
from leasectl.system.process import this_process
from tests.kit.forking import ending, fork
from tests.kit.support import Cli


def left(path: str) -> str:
    """A pipe that nobody reads any more."""
    os.mkfifo(path)
    return path


def a_handle(state: State, handle_id: str, **fields: object) -> Handle:
    handle = Handle(
        id=handle_id,
        backend="local:",
        request=Request("T"),
        owner="job/1",
        holder_identity=f"job/1/host/{handle_id}",
        state="acquiring",
        acquisition=1,
    )._replace(**fields)  # type: ignore[arg-type]
    with state.transaction():
        Handles(state).create(handle, remote=False)
    return handle


def test_what_nobody_reads_is_removed(state: State) -> None:
    paths = sorted(left(state.waiter_pipe(name)) for name in ("a", "b"))
    assert list(unused(state)) == paths
    tidy(state)
    assert os.listdir(state.path("waiters")) == []


def test_what_somebody_reads_stays_though_nothing_is_on_record_of_it_yet(state: State) -> None:
    with contextlib.closing(listen(state.waiter_pipe("early"))):
        left(state.waiter_pipe("late"))
        assert list(unused(state)) == [state.waiter_pipe("late")]
        tidy(state)
        assert os.listdir(state.path("waiters")) == [os.path.basename(state.waiter_pipe("early"))]


def test_what_is_on_record_stays_and_is_not_woken(state: State) -> None:
    runner = a_handle(state, "T-runs", runner=this_process())
    waiting = a_handle(state, "T-waits", acquisition=2)
    paths = [state.runner_pipe(runner.id), state.cancel_pipe(waiting.id, 2)]
    with contextlib.ExitStack() as ends:
        pipes = [ends.enter_context(contextlib.closing(listen(path))) for path in paths]
        tidy(state)
        assert sorted(os.listdir(state.path("waiters"))) == sorted(map(os.path.basename, paths))
        assert not any(is_readable(pipe.fd, 0) for pipe in pipes)


def test_of_an_earlier_acquisition_and_of_what_is_released_it_goes(state: State) -> None:
    waiting = a_handle(state, "T-waits", acquisition=2)
    runner = a_handle(state, "T-ran", runner=this_process())
    with state.transaction() as db:
        db.execute("UPDATE handle SET state = 'released' WHERE id = 'T-ran'")
    gone = sorted([left(state.cancel_pipe(waiting.id, 1)), left(state.runner_pipe(runner.id))])
    left(state.cancel_pipe(waiting.id, 2))
    assert list(unused(state)) == gone


def test_where_no_pipe_is_no_handle_is_looked_at(state: State) -> None:
    a_handle(state, "T-runs", runner=this_process())
    asked: list[str] = []
    state.db.set_trace_callback(asked.append)
    tidy(state)
    assert asked == []
    left(state.waiter_pipe("a"))
    tidy(state)
    assert sum("FROM handle" in each for each in asked) == 1


def test_a_folder_that_was_removed_has_nothing_and_is_made_anew(state: State) -> None:
    shutil.rmtree(state.path("waiters"))
    tidy(state)
    assert not os.path.exists(state.path("waiters"))
    with contextlib.closing(listen(state.waiter_pipe("a"))):
        assert len(os.listdir(state.path("waiters"))) == 1
    assert os.stat(state.path("waiters")).st_mode & 0o777 == 0o700


def test_more_are_woken_than_may_be_open_files_at_once(cli: Cli) -> None:
    cli.pool("T")
    (cli.state_dir / "waiters").mkdir(exist_ok=True)
    pipes = [listen(str(cli.state_dir / "waiters" / f"waiter-{number}")) for number in range(100)]

    def wake() -> None:
        for pipe in pipes:
            os.close(pipe.fd)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limits = (len(os.listdir("/proc/self/fd")) + 40, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        own = State.open(str(cli.state_dir))
        with own.transaction():
            assert all(own.wake(pipe.path) for pipe in pipes)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits

    assert ending(fork(wake)) == 0
    assert all(is_readable(pipe.fd, 10) for pipe in pipes)
    for pipe in pipes:
        pipe.close()
