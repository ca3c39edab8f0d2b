"""``leasectl pool``, as people and scripts run it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from leasectl.cli.pool_options import warn_of_unmet
from leasectl.errors import BackendUnreachable
from leasectl.leases.service import Service
from tests.kit.support import Cli

USAGE, NOT_FOUND, NOT_ALLOWED = 64, 66, 77


def names(cli: Cli, pool_type: str) -> list[str]:
    rows = cli.query("SELECT name FROM resource WHERE type = ?", pool_type)
    return sorted(str(name) for (name,) in rows)


def capacity(cli: Cli, pool_type: str) -> object:
    ((found,),) = cli.query("SELECT capacity FROM pool WHERE type = ?", pool_type)
    return found


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("create", "U", "--count", "1"),
            'leasectl: created pool "U" of 1 resource, U--00\n',
        ),
        (
            ("add", "T", "--count", "2"),
            'leasectl: added to pool "T": 2 resources, T--02 and T--03\n',
        ),
        (
            ("add", "T", "--names", "a,b,c"),
            'leasectl: added to pool "T": 3 resources, a … c\n',
        ),
        (
            ("remove", "T", "--names", "T--00"),
            'leasectl: removed from pool "T": 1 resource, T--00\n',
        ),
        (("delete", "T"), 'leasectl: deleted pool "T"\n'),
    ],
)
def test_a_change_is_confirmed_on_stderr_unless_quiet(
    cli: Cli, args: tuple[str, ...], said: str
) -> None:
    cli.pool("T")
    finished = cli("pool", *args)
    assert (finished.code, finished.out, finished.err) == (0, "", said)
    cli("pool", "delete", "T")
    cli("pool", "delete", "U")
    cli.pool("T")
    quiet = cli("pool", *args, "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_to_add_what_is_there_says_so(cli: Cli) -> None:
    cli.pool("T", "a", "b")
    assert cli("pool", "add", "T", "--names", "a,b").err == (
        'leasectl: already in pool "T": 2 resources, a and b\n'
    )
    said = cli("pool", "add", "T", "--names", "c,a", "--property", "size=2")
    assert (said.code, said.err) == (
        0,
        'leasectl: added to pool "T": 1 resource, c; size=2\n'
        'leasectl: already in pool "T": 1 resource, a; size=2\n',
    )


def test_adding_continues_after_the_highest_number(cli: Cli) -> None:
    cli.ok("pool", "create", "T", "--names", "T--07,T--9,other,T--x1,S--99")
    cli.ok("pool", "add", "T", "--count", "2")
    assert {"T--10", "T--11"} <= set(names(cli, "T"))
    assert capacity(cli, "T") == 7


@pytest.mark.parametrize(
    "args",
    [
        ("--count", "0"),
        ("--count", "-1"),
        ("--count", "many"),
        ("--count", "100001"),
        ("--count", "1" + "0" * 40),
        (),
        ("--count", "1", "--names", "a"),
        ("--names", "a,a"),
        ("--names", ""),
        ("--names", "a,,b"),
        ("--names", "a,"),
        ("--names", "a/b"),
        ("--names", "-a"),
        ("--names", "a\nb"),
        ("--names", "$(id)"),
        ("--names", "n" * 254),
        ("--count",),
    ],
)
@pytest.mark.parametrize("command", ["create", "add"])
def test_what_cant_be_meant_is_one_line_and_changes_nothing(
    cli: Cli, command: str, args: tuple[str, ...]
) -> None:
    finished = cli("pool", command, "T", *args)
    assert (finished.code, finished.out) == (USAGE, "")
    assert finished.err.startswith("leasectl: ")
    assert finished.err.count("\n") == 1
    assert not cli.state_dir.exists()


@pytest.mark.parametrize("pool_type", ["a/b", "-a", "", "a\nb", "$(id)", "t" * 201, "ä"])
def test_a_type_that_isnt_allowed_is_refused(cli: Cli, pool_type: str) -> None:
    finished = cli("pool", "create", "--count", "1", "--", pool_type)
    assert (finished.code, finished.err.count("\n")) == (USAGE, 1)
    assert not cli.state_dir.exists()


def test_the_longest_type_and_name_are_allowed(cli: Cli) -> None:
    longest = "t" * 200
    cli.ok("pool", "create", longest, "--count", "2")
    assert names(cli, longest) == [f"{longest}--00", f"{longest}--01"]
    cli.ok("pool", "create", "T", "--names", "n" * 253)
    handle = cli.ok("acquire", "-t", longest).strip()
    assert cli.ok("cat", "--handle", handle) == f"{longest}--00\n"


def test_a_pool_that_is_there_isnt_made_again(cli: Cli) -> None:
    cli.pool("T")
    finished = cli("pool", "create", "T", "--count", "5")
    assert finished.code == USAGE
    assert finished.err == (
        'leasectl: pool "T" exists; to add resources: leasectl pool add T --count N; '
        "to change its settings: leasectl pool set T; "
        "to match a file: leasectl pool apply -f FILE\n"
    )
    assert len(names(cli, "T")) == 2


@pytest.mark.parametrize(
    "args", [("add", "--count", "1"), ("remove", "--names", "a"), ("delete",)], ids=lambda a: a[0]
)
def test_an_unknown_type_gets_a_suggestion(cli: Cli, args: tuple[str, ...]) -> None:
    cli.pool("azure--install")
    finished = cli("pool", args[0], "azure--instal", *args[1:])
    assert finished.code == NOT_FOUND
    assert 'did you mean "azure--install"?' in finished.err


def test_pools_are_listed_with_their_numbers(cli: Cli) -> None:
    cli.pool("azure--install", "a", "b", "c")
    cli.pool("lab", "d")
    cli.ok("acquire", "-t", "azure--install", "-c", "2")
    assert cli.ok("pool", "list").splitlines() == [
        "POOL            CAPACITY  FREE  HELD  WAITING",
        "azure--install         3     1     2        0",
        "lab                    1     1     0        0",
    ]
    plain: dict[str, Any] = {
        "waiting": 0,
        "unavailable": 0,
        "pace_seconds": 0,
        "burst": 1,
        "aging_seconds": 0,
        "next_grant_in_seconds": 0,
        "default_grace_seconds": None,
        "properties": {},
    }
    assert json.loads(cli.ok("pool", "list", "--json")) == {
        "backend": "local:",
        "pools": [
            {"type": "azure--install", "capacity": 3, "free": 1, "held": 2, **plain},
            {"type": "lab", "capacity": 1, "free": 1, "held": 0, **plain},
        ],
    }


def test_no_pools_are_a_hint_on_stderr(cli: Cli) -> None:
    finished = cli("pool", "list")
    assert (finished.code, finished.out) == (0, "")
    assert "leasectl pool create POOL --count N" in finished.err
    assert json.loads(cli.ok("pool", "list", "--json")) == {"backend": "local:", "pools": []}


@pytest.mark.parametrize("args", [(), ("pool",)])
def test_without_a_command_the_help_goes_to_stderr(cli: Cli, args: tuple[str, ...]) -> None:
    finished = cli(*args)
    assert (finished.code, finished.out) == (USAGE, "")
    assert finished.err.startswith("Usage: leasectl")


@pytest.mark.parametrize(
    ("args", "suggestion"), [(("aquire",), "acquire"), (("pool", "creat", "T"), "create")]
)
def test_a_misspelt_command_gets_a_suggestion(
    cli: Cli, args: tuple[str, ...], suggestion: str
) -> None:
    finished = cli(*args)
    assert finished.code == USAGE
    assert f'did you mean "{suggestion}"?' in finished.err


def test_a_command_like_no_other_gets_no_suggestion(cli: Cli) -> None:
    finished = cli("xyzzy")
    assert (finished.code, finished.err) == (
        USAGE,
        'leasectl: no command "xyzzy"; see: leasectl --help\n',
    )


def test_no_error_message_controls_the_terminal(cli: Cli) -> None:
    for args in (
        ("\x1b[31m",),
        ("status", "--\x1b[31m"),
        ("pool", "create", "T", "--names", "\x1b"),
    ):
        finished = cli(*args)
        assert finished.code == USAGE
        assert "\x1b" not in finished.err


def test_what_was_done_is_done_where_nobody_tells_who_waits(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Silent:
        def pools(self, pool_type: str) -> NoReturn:
            raise BackendUnreachable("no answer from there")

    warn_of_unmet(cast("Service", SimpleNamespace(pools=Silent())), "T")
    said = capfd.readouterr().err
    assert said.startswith("leasectl: done; ")
    assert said.endswith(": no answer from there\n")
