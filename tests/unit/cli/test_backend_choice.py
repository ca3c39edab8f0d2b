"""Which backend a command uses, and when it doesn't matter which the environment names."""

from __future__ import annotations

import json

import pytest

from tests.kit.support import Cli

USAGE = 64


@pytest.mark.parametrize(
    "args",
    [
        ("acquire", "-t", "T"),
        ("run", "-t", "T", "true"),
        ("pool", "create", "T", "--count", "1"),
        ("status",),
    ],
    ids=lambda args: args[0],
)
@pytest.mark.parametrize(
    "env",
    [
        {"LEASECTL_BACKEND": "gopher:"},
        {"LEASE_PROXY_SERVER_URL": "gopher:"},
        {"LEASECTL_BACKEND": "gopher:", "LEASE_PROXY_SERVER_URL": "local:"},
    ],
    ids=lambda env: "+".join(env),
)
def test_a_backend_that_there_isnt_is_refused_and_no_state_directory_made(
    cli: Cli, args: tuple[str, ...], env: dict[str, str | None]
) -> None:
    finished = cli(*args, **env)
    assert (finished.code, finished.out) == (USAGE, "")
    assert 'no backend "gopher:"' in finished.err
    assert finished.err.endswith(f"; that is what {next(iter(env))} says\n")
    assert not cli.state_dir.exists()


def test_the_option_wins_over_the_environment(cli: Cli) -> None:
    cli.pool("T")
    found = json.loads(cli.ok("status", "--json", "--backend", "local:", LEASECTL_BACKEND="none:"))
    assert found["backend"] == "local:"
    for named in ("gopher:", "None"):
        refused = cli("release", "--all", "--backend", named, LEASECTL_BACKEND="none:")
        assert (refused.code, " says" in refused.err) == (USAGE, False)


@pytest.mark.parametrize(
    "command", [("cat",), ("renew",), ("reacquire",), ("release",)], ids=lambda command: command[0]
)
def test_a_handle_remembers_its_backend_whatever_the_environment_names(
    cli: Cli, command: tuple[str, ...]
) -> None:
    cli.pool("T")
    handle = cli.ok("acquire", "-t", "T", "--backend", "local:").strip()
    finished = cli(*command, "--handle", handle, LEASE_PROXY_SERVER_URL="gopher://proxy")
    assert (finished.code, finished.err) == (0, "")


def test_all_is_released_whatever_the_environment_names(cli: Cli) -> None:
    cli.pool("T")
    cli.ok("acquire", "-t", "T")
    assert cli.ok("release", "--all", LEASE_PROXY_SERVER_URL="gopher://proxy") == "T--00\n"
