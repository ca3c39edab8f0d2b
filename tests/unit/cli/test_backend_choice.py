"""Which backend a command uses, and when it doesn't matter which the environment names."""

from __future__ import annotations

import json

import pytest

from tests.kit.support import Cli

USAGE = 64


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (("acquire", "-t", "T"), {"LEASECTL_BACKEND": "gopher:"}),
        (("run", "-t", "T", "true"), {"LEASE_PROXY_SERVER_URL": "gopher:"}),
        (("status",), {"LEASECTL_BACKEND": "gopher:", "LEASE_PROXY_SERVER_URL": "local:"}),
    ],
)
def test_a_backend_that_there_isnt_is_refused_and_no_state_directory_made(
    cli: Cli, args: tuple[str, ...], env: dict[str, str | None]
) -> None:
    finished = cli(*args, **env)
    assert (finished.code, finished.out) == (USAGE, "")
    assert 'unknown backend "gopher:"' in finished.err
    assert finished.err.endswith(f"; {next(iter(env))} has this value\n")
    assert not cli.state_dir.exists()


@pytest.mark.parametrize(
    "url",
    [
        *("http://x/?token=s3cret", "http://x/#s3cret", "http://x:99999/?token=s3cret"),
        *("boskos+http://x/?token=s3cret", "boskos+http://x/?s3cret", "gopher://x/?token=s3cret"),
        *("etcd://x/?token=s3cret", "kubernetes://x?token=s3cret", "http://u:s3cret@x/"),
        *("boskos+http://u:s3cret@x", "etcd://u:s3cret@x"),
    ],
)
def test_a_secret_in_a_refused_url_is_not_printed(cli: Cli, url: str) -> None:
    for command in (("acquire", "-t", "T"), ("doctor",)):
        finished = cli(*command, LEASECTL_BACKEND=url)
        assert finished.code == USAGE
        assert "s3cret" not in finished.out + finished.err
        assert "token=\u2026" in finished.out + finished.err or "token" not in url


def test_the_option_wins_over_the_environment(cli: Cli) -> None:
    cli.pool("T")
    found = json.loads(cli.ok("status", "--json", "--backend", "local:", LEASECTL_BACKEND="none:"))
    assert found["backend"] == "local:"
    for named in ("gopher:", "None", ""):
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


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("ectd://127.0.0.1:1/x", 'did you mean "etcd://127.0.0.1:1/x"?'),
        ("127.0.0.1:2379", "did you mean etcd://127.0.0.1:2379 or http://127.0.0.1:2379?"),
    ],
)
def test_error_suggests_a_backend_for_a_url_with_a_typo(cli: Cli, url: str, meant: str) -> None:
    finished = cli("status", "--backend", url)
    assert (finished.code, finished.out) == (USAGE, "")
    assert meant in finished.err


def test_capitals_and_blanks_around_a_url_are_accepted(cli: Cli) -> None:
    cli.pool("T", "T--00")
    assert cli.ok("pool", "list", "--backend", " LOCAL: ").startswith("POOL")


@pytest.mark.parametrize("command", [["acquire", "T"], ["pool", "list"]], ids=" ".join)
def test_backend_may_stand_before_the_command(cli: Cli, command: list[str]) -> None:
    finished = cli("--backend", "gopher:", *command)
    assert (finished.code, finished.out) == (USAGE, "")
    assert 'unknown backend "gopher:"; choose' in finished.err


def test_backend_after_the_command_counts(cli: Cli) -> None:
    cli.pool("T", "T--00")
    assert cli.ok("--backend", "gopher:", "pool", "list", "--backend", "local:").startswith("POOL")
