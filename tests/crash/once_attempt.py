"""A work that somebody asks for who is killed, or doesn't hear an answer, and whoever asks next."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Callable, NamedTuple

from tests.crash.sweeping import lose_answer
from tests.kit.forking import ending, fork, leasectl
from tests.kit.support import Cli
from tests.kit.waits import PATIENCE_SECONDS, eventually

WORK = 'exec 9>>"$1.alone"; flock -n 9 || echo beside >>"$1"; echo ran >>"$1"; echo "$$"; exit $2'


class Attempt(NamedTuple):
    """A work of its own, at which somebody is killed.

    Args:
        cli: Who asks.
        key: For what.
        options: How.
        status: How its command ends.
    """

    cli: Cli
    key: str
    options: tuple[str, ...] = ()
    status: int = 0

    @property
    def log(self) -> Path:
        return self.cli.cwd / f"log-{self.key}"

    def ask(self, before: Callable[[], object] = lambda: None) -> tuple[int, str]:
        """Ask for it in a process that does something before; how that ended, and its result."""
        return self.finish(self.begin(before))

    @property
    def output(self) -> Path:
        return self.cli.cwd / "output"

    def finish(self, pid: int) -> tuple[int, str]:
        """Wait for one that has begun; returns as `ask`."""
        code = ending(pid)
        return code, self.output.read_text() if self.output.exists() else ""

    def begin(self, before: Callable[[], object]) -> int:
        """Begin to ask for it; returns the process."""
        self.output.unlink(missing_ok=True)
        words = ["once", self.key, "-q", "-w", f"{PATIENCE_SECONDS:g}s", *self.options, "--"]
        words += ["sh", "-c", WORK, "-", str(self.log), str(self.status)]

        def work() -> None:
            os.chdir(self.cli.cwd)
            before()
            leasectl(self.cli.state_dir, self.output, *words)

        return fork(work)

    def check(self, code: int, out: str, when: str) -> None:
        """See that all is well, although somebody was killed."""
        assert code in (0, -signal.SIGKILL), when
        again, result = self.ask()
        assert (again, bool(result)) == (0, True), when
        assert self.ask() == (0, result), when
        assert out in ("", result), when
        said = self.log.read_text().split()
        assert set(said) == {"ran"}, when
        assert len(said) <= (1 if code == 0 else 2), when


def lose(number: int, mark: Path) -> None:
    """Have the answer to the request of that number be lost, and who asks soon give that up."""
    os.environ["LEASECTL_RELEASE_TIMEOUT"] = "0.3s"
    lose_answer(number, seconds=0.7, mark=mark)


def see_all_gone(leftovers: Callable[[], list[str]]) -> None:
    """Wait until the keepers have removed all that isn't needed, while nobody asks again.

    Args:
        leftovers: What there is still of that.
    """
    try:
        eventually(lambda: leftovers() == [])
    except AssertionError:
        assert leftovers() == []
