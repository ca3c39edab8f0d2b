"""Requests of a command that runs under a lease itself."""

from __future__ import annotations

import shlex

import pytest

from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

USAGE, NO_LEASE = 64, 75


def nested(cli: Cli, *words: str) -> tuple[str, ...]:
    """What `run` is to run, so that it is this leasectl."""
    return tuple(cli.command(*words))


class TestAWaitThatOnlyACallerCanEnd:
    @pytest.fixture(autouse=True)
    def pools(self, cli: Cli) -> None:
        cli.pool("one", "a")
        cli.pool("two", "b", "c")

    @pytest.mark.parametrize(
        ("verb", "options"),
        [("run", ("--optional",)), ("acquire", ("-w", "1h")), ("acquire", ()), ("reacquire", ())],
        ids=str,
    )
    def test_is_refused(self, cli: Cli, verb: str, options: tuple[str, ...]) -> None:
        words = {
            "run": ("run", "one", *options, "--", "true"),
            "acquire": ("acquire", "one", *options),
            "reacquire": ("reacquire", "H", "-w", "1h"),
        }[verb]
        if verb == "reacquire":
            handle = cli("acquire", "one").handle
            cli.ok("release", handle)
            words = ("reacquire", handle)
        finished = cli("run", "one", "--", *nested(cli, *words))
        assert finished.code == USAGE
        assert "a leasectl command around this one holds a, so" in finished.err
        assert cli.held() == {}
        assert cli.waiting() == []

    def test_is_refused_through_a_command_between_and_by_count_and_name(self, cli: Cli) -> None:
        for words in (("one",), ("two", "-c", "2"), ("two", "--name", "b")):
            inner = shlex.join(nested(cli, "run", *words, "--", "true"))
            between = nested(cli, "run", "two", "--name", "b", "--", "sh", "-c", inner)
            assert cli("run", "one", "--", *between).code == USAGE, words
        assert cli.held() == {}

    def test_is_none_where_another_resource_or_pool_will_do(self, cli: Cli) -> None:
        cli.ok("run", "two", "--", *nested(cli, "run", "two", "--", "true"))
        cli.ok("run", "one", "--", *nested(cli, "run", "-t", "one", "-t", "two", "--", "true"))

    def test_is_none_without_a_wait(self, cli: Cli) -> None:
        inner = nested(cli, "run", "one", "-w", "0", "--", "true")
        assert cli("run", "one", "--", *inner).code == NO_LEASE

    def test_is_none_once_the_lease_was_released_or_will_be_by_itself(self, cli: Cli) -> None:
        inner = shlex.join(nested(cli, "run", "one", "--", "true"))
        release = shlex.join(nested(cli, "release"))
        cli.ok("run", "one", "--", "sh", "-c", f'{release} "$LEASECTL_HANDLE" && {inner}')
        cli.ok("run", "one", "--release-after", "1s", "--", "sh", "-c", inner)

    def test_is_none_where_another_job_holds_what_is_missing(self, cli: Cli) -> None:
        held = cli("acquire", "two").handle
        inner = nested(cli, "run", "two", "--", "true")
        started = cli.start("run", "two", "--", *inner)
        eventually(lambda: len(cli.waiting()) == 1, what="the inner one waits")
        cli.ok("release", held)
        assert started.finish().code == 0
