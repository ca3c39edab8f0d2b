"""``--count all``, as scripts ask for it."""

from __future__ import annotations

import pytest

from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

USAGE, NO_LEASE = 64, 75


@pytest.fixture(autouse=True)
def pool(cli: Cli) -> None:
    cli.pool("T", "a", "b", "c")


def test_acquire_and_run_lease_the_whole_pool(cli: Cli) -> None:
    assert cli.ok("acquire", "T", "--count", "all", "--output", "csv") == "a,b,c\n"
    cli.ok("release", "--all")
    show = ("--", "sh", "-c", 'echo "$LEASECTL_NAMES"')
    assert sorted(cli.ok("run", "T", "-c", "all", *show).strip().split(",")) == ["a", "b", "c"]
    cli.ok("pool", "set", "T", "--names", "a,c", "--property", "region=eu")
    assert cli.ok("run", "T", "-c", "all", "--where", "region=eu", *show) == "a,c\n"


def test_reacquire_counts_the_pool_again(cli: Cli) -> None:
    handle = cli.ok("acquire", "T", "--count", "all").strip()
    cli.ok("pool", "add", "T", "--names", "d")
    cli.ok("reacquire", handle)
    assert sorted(cli.ok("cat", handle).split()) == ["a", "b", "c", "d"]


def test_pool_that_grows_during_the_wait_ends_the_request(cli: Cli) -> None:
    shared = cli.ok("acquire", "T").strip()
    exclusive = cli.start("run", "T", "--count", "all", "--", "true")
    eventually(lambda: len(cli.waiting()) == 1)
    cli.ok("pool", "add", "T", "--names", "d")
    cli.ok("release", shared)
    finished = exclusive.finish()
    assert finished.code == NO_LEASE
    assert "--count all counted 3 resources, and now there are 4; try again" in finished.err
    assert (cli.held(), cli.waiting()) == ({}, [])


@pytest.mark.parametrize(
    "argv",
    [
        ("acquire", "T", "--count", "every"),
        ("acquire", "T", "--count", "all", "--name", "a"),
        ("acquire", "-t", "T", "-t", "U", "--count", "all"),
        ("acquire", "T", "--count", "all", "--backend", "http://127.0.0.1:1"),
        ("run", "T", "--count", "all", "--backend", "boskos+http://127.0.0.1:1", "--", "true"),
    ],
)
def test_request_that_has_no_whole_pool_is_refused(cli: Cli, argv: tuple[str, ...]) -> None:
    assert cli(*argv).code == USAGE


def test_request_under_a_command_that_holds_a_part_is_refused(cli: Cli) -> None:
    nested = ("leasectl", "acquire", "T", "--count", "all")
    finished = cli("run", "T", "--", *nested)
    assert finished.code == USAGE, finished
    assert "a leasectl command around this one holds" in finished.err


def test_dry_run_grants_it(cli: Cli) -> None:
    cli.ok("acquire", "T", "--count", "all", "--backend", "none:")
