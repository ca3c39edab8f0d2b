"""A lease is taken by force, and its `run` is killed before it has confirmed the command's end.

Whenever that happens, the next grant comes, and no sooner than the command has ended.
"""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path
from types import FrameType

from leasectl.backends.contract import Patience
from leasectl.leases.acquire import acquire
from leasectl.leases.release import release
from leasectl.leases.release_forced import release_by_force
from leasectl.model import Request, whole
from tests.crash.sweeping import Sweep
from tests.kit.forking import ending, fork, leasectl
from tests.kit.killing import kill_at
from tests.kit.support import Cli

NEVER = 1 << 30  # an event that doesn't come


class TakenRun:
    """A `run` whose lease is taken by force, and which is then killed.

    Args:
        sweep: On whose state directory.
        number: The event at which it is killed, from when it sleeps beside its command on.
    """

    def __init__(self, sweep: Sweep, number: int) -> None:
        self._said, said = os.pipe()
        told, self._told = os.pipe()

        def work() -> None:
            os.set_inheritable(told, True)
            os.close(self._told)

            def before_poll(frame: FrameType) -> None:
                caller = frame.f_back  # of `sleep`
                if caller is not None and caller.f_code.co_name == "_sleep":
                    os.write(said, b"%d\n" % caller.f_locals["child"].pid)
                    kill_at(number)

            kill_at(NEVER, before_poll=before_poll)
            # It says when TERM comes, and ends when it is told to, or nobody is there to tell it.
            command = [
                "sh",
                "-c",
                f"trap : TERM; until read -r _ </proc/self/fd/{told}; do :; done",
            ]
            leasectl(sweep.cli.state_dir, sweep.output, "run", "-q", "-t", "T", "--", *command)

        self._pid = fork(work)
        self._pidfd = os.pidfd_open(self._pid)
        os.close(said)
        os.close(told)
        command = int(os.read(self._said, 100).split()[0])
        self.command_pidfd = os.pidfd_open(command)

    def end_command(self) -> None:
        """Have the command end, whether or not it was told to."""
        with contextlib.suppress(BrokenPipeError):  # TERM came before it had said to ignore that
            os.write(self._told, b"end\n")

    def ending(self) -> int:
        for fd in (self._said, self._told, self._pidfd, self.command_pidfd):
            os.close(fd)
        return ending(self._pid)


def take_by_force_and_acquire(cli: Cli, run: TakenRun) -> None:
    with cli.service(owner="other@host") as service:
        (forced,) = release_by_force(service, ["T--0"], reason="")
    assert forced.has_run
    next_one = fork(lambda: acquire_next(cli, run))
    run.end_command()
    assert ending(next_one) == 0


def acquire_next(cli: Cli, run: TakenRun) -> None:
    with cli.service(owner="next@host") as service:
        handle = acquire(service, Request("T"), patience=Patience(wait_seconds=30))
        has_ended = bool(select.select([run.command_pidfd], [], [], 0)[0])
        release(service, whole(handle))
        assert has_ended, "granted while the command ran"


def test_run_can_be_killed_anywhere_between_force_and_confirmation(
    cli: Cli, tmp_path: Path
) -> None:
    sweep = Sweep(cli, tmp_path, capacity=1)

    def attempt(number: int) -> int:
        run = TakenRun(sweep, number)
        take_by_force_and_acquire(cli, run)
        code = run.ending()
        sweep.check(f"run killed {number} events after force")
        return 0 if code == 79 else code

    sweep.kill_each(attempt, stride=6, at_least=15)
