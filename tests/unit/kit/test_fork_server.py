"""Commands that are forked, where a mistake of theirs would fail other tests now and then."""

from __future__ import annotations

import threading

from tests.kit.support import Cli, Started


class _Ending(threading.Thread):
    """One of several who end a command."""

    def __init__(self, command: Started) -> None:
        super().__init__()
        self._command = command
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while self._command.process.poll() is None:
                self._command.signal(15)
        except Exception as error:
            self.error = error


def test_one_may_wait_for_its_end_while_others_end_it(cli: Cli) -> None:
    for _ in range(20):
        started = cli.start("run", "--backend", "none:", "T", "--", "sleep", "60")
        others = [_Ending(started) for _ in range(4)]
        for each in others:
            each.start()
        finished = started.finish()
        for each in others:
            each.join()
        assert (finished.code, [each.error for each in others]) == (-15, [None] * 4), finished
