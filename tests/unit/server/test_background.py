"""``leasectl serve --print-env``: a server in the background, and what its shell knows of it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.boskos.process import StartBoskos
from tests.kit.faults.process import StartFaultProxy
from tests.kit.serving import Serving, held
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

# In words that all of them have: $0 is the interpreter.
BEGIN = {
    "sh": 'eval "$("$PY" -m leasectl serve --print-env)"',
    "bash": 'set -euo pipefail; eval "$("$PY" -m leasectl serve --print-env --shell bash)"',
    "zsh": 'setopt errexit; eval "$("$PY" -m leasectl serve --print-env --shell zsh)"',
    "fish": "eval ($PY -m leasectl serve --print-env --shell fish)",
}


@pytest.fixture
def started(cli: Cli) -> Iterator[dict[str, str]]:
    """A server in the background: what its shell was told to export."""
    variables = dict(re.findall(r"(?m)^export (\w+)=(.*);$", cli.ok("serve", "-q", "--print-env")))
    yield variables
    if is_alive(variables):
        os.kill(int(variables["LEASECTL_SERVE_PID"]), signal.SIGTERM)


def started_here(cli: Cli) -> dict[str, str]:
    """One whose state directory is named as from the current folder, which it leaves."""
    here = os.path.relpath(cli.state_dir, cli.cwd)
    said = cli.ok("serve", "-q", "--print-env", LEASECTL_STATE_DIR=here)
    return dict(re.findall(r"(?m)^export (\w+)=(.*);$", said))


def bearer(variables: dict[str, str]) -> dict[str, str]:
    """The header that shows the token of a server in the background."""
    return {"Authorization": f"Bearer {Path(variables['LEASECTL_TOKEN_FILE']).read_text().strip()}"}


def is_alive(variables: dict[str, str]) -> bool:
    try:
        os.kill(int(variables["LEASECTL_SERVE_PID"]), 0)
    except ProcessLookupError:
        return False
    return True


def end(variables: dict[str, str]) -> None:
    os.kill(int(variables["LEASECTL_SERVE_PID"]), signal.SIGTERM)
    eventually(lambda: not is_alive(variables))


def script(cli: Cli, shell: str, *lines: str) -> Finished:
    return cli.spawn([shell, "-c", "\n".join(lines)], PY=sys.executable).finish()


def test_all_that_it_does_is_in_one_state_directory(cli: Cli, boskos: StartBoskos) -> None:
    cli.pool("T", "only")
    behind = boskos("S=1")
    for backend, pool_type in (("local:", "T"), (behind.backend, "S")):
        cli.env["LEASECTL_BACKEND"] = backend
        variables = started_here(cli)
        server = Serving.at(variables["LEASE_PROXY_SERVER_URL"])
        try:
            shown = bearer(variables)
            with server.connect() as client:
                (name,) = client.acquire(pool_type, 1, **shown).names
                assert name in client.ask("GET", "/", **shown).text
                assert client.release(name, **shown).status == 204
        finally:
            end(variables)
    assert behind.owners == {}


class TestShells:
    @pytest.mark.parametrize("shell", BEGIN)
    def test_each_evaluates_it_shows_the_token_and_ends_it(
        self, cli: Cli, shell: str, tmp_path: Path
    ) -> None:
        if shutil.which(shell) is None:
            pytest.skip(f"needs {shell}")
        cli.pool("T")
        folder = tmp_path / "it's a \\ folder"
        folder.mkdir()
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text("s3cret")
        cli.env["TOKEN"] = str(folder / "token")
        finished = script(
            cli,
            shell,
            BEGIN[shell].replace("--print-env", '--token-file "$TOKEN" --print-env'),
            "$PY -m leasectl acquire -q -t T --output names",
            "$PY -m leasectl status",
            'kill "$LEASECTL_SERVE_PID"',
            'echo "$LEASE_PROXY_SERVER_URL"',
        )
        assert finished.code == 0, finished
        assert finished.err == ""
        name, *shown, url = finished.out.splitlines()
        assert name == "T--00"
        assert any(line.split()[:1] == ["T--00"] for line in shown)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert held(cli, "T") == ["T--00"]


class TestTheServer:
    def test_it_has_nothing_of_its_starters(self, started: dict[str, str]) -> None:
        proc = Path("/proc", started["LEASECTL_SERVE_PID"])
        assert {os.readlink(proc / "fd" / n) for n in "012"} == {"/dev/null"}
        assert os.readlink(proc / "cwd") == "/"
        assert os.getsid(int(proc.name)) == int(proc.name)
        assert Serving.at(started["LEASE_PROXY_SERVER_URL"]).get("/healthz") == "ok\n"

    def test_what_goes_wrong_is_in_its_log(self, cli: Cli, started: dict[str, str]) -> None:
        with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db:
            db.execute("DROP TABLE pool")
        with Serving.at(started["LEASE_PROXY_SERVER_URL"]).connect() as client:
            assert client.ask("GET", "/metrics", **bearer(started)).status in (500, 503)
        assert "GET /metrics failed" in (cli.state_dir / "serve.log").read_text()

    def test_what_keeps_it_from_starting_is_said_by_its_starter(self, cli: Cli) -> None:
        finished = cli("serve", "--print-env", "--listen", "192.0.2.1:0")
        assert (finished.code, finished.out, finished.err.count("\n")) == (69, "", 1)
        assert "can't listen on 192.0.2.1:0" in finished.err

    def test_one_that_nobody_heard_of_ends(self, cli: Cli) -> None:
        words = " ".join(cli.command("serve", "--print-env"))
        # Nobody reads: what was printed is lost.
        cli.spawn(["bash", "-c", f"{words} >&-"]).finish()
        cli.spawn(["bash", "-c", f"{words} > /dev/full"]).finish()
        eventually(lambda: not servers(cli))


class TestToken:
    def test_one_is_made_that_only_this_user_can_read(
        self, cli: Cli, started: dict[str, str]
    ) -> None:
        cli.pool("T")
        file = Path(started["LEASECTL_TOKEN_FILE"])
        assert (file.parent, file.stat().st_mode & 0o777) == (cli.state_dir, 0o600)
        with Serving.at(started["LEASE_PROXY_SERVER_URL"]).connect() as client:
            assert client.acquire("T").status == 401
        assert cli("acquire", "-q", "-t", "T", **started).code == 0
        assert held(cli, "T") == ["T--00"]

    def test_no_token_lets_scripts_with_curl_go_on(self, cli: Cli) -> None:
        cli.pool("T")
        said = cli.ok("serve", "--print-env", "--no-token")
        variables = dict(re.findall(r"(?m)^export (\w+)=(.*);$", said))
        try:
            assert "LEASECTL_TOKEN_FILE" not in variables
            with Serving.at(variables["LEASE_PROXY_SERVER_URL"]).connect() as client:
                assert client.acquire("T").names == ["T--00"]
        finally:
            end(variables)

    def test_what_lies_in_its_place_is_not_followed(self, cli: Cli, tmp_path: Path) -> None:
        cli.pool("T")
        (tmp_path / "elsewhere").write_text("known")
        (cli.state_dir / "serve.token").symlink_to(tmp_path / "elsewhere")
        finished = cli("serve", "--print-env")
        assert (finished.code, finished.out, finished.err.count("\n")) == (73, "", 1)
        assert "serve.token" in finished.err


def servers(cli: Cli) -> list[int]:
    """The servers on a state directory that are there."""
    found = []
    wanted = f"LEASECTL_STATE_DIR={cli.state_dir}".encode()
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            command = (proc / "cmdline").read_bytes().split(b"\0")
            if b"serve" in command and wanted in (proc / "environ").read_bytes().split(b"\0"):
                found.append(int(proc.name))
        except OSError:
            continue
    return found


class TestWhenItIsGone:
    @pytest.mark.parametrize(
        "command", [("acquire", "-t", "T", "-w", "1m"), ("status",)], ids=lambda each: each[0]
    )
    def test_the_next_command_says_so_and_what_points_there(
        self, cli: Cli, started: dict[str, str], command: tuple[str, ...]
    ) -> None:
        end(started)
        finished = cli(*command, **started)
        assert (finished.code, finished.out, finished.err.count("\n")) == (69, "", 1)
        url, pid = started["LEASE_PROXY_SERVER_URL"], started["LEASECTL_SERVE_PID"]
        assert f"leasectl serve at {url} is gone: process {pid}" in finished.err
        assert "LEASE_PROXY_SERVER_URL still points there: unset it" in finished.err

    def test_it_has_ended_also_where_nobody_reaps_it(self, cli: Cli) -> None:
        process = subprocess.Popen(["true"])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        gone = {"LEASE_PROXY_SERVER_URL": "http://127.0.0.1:9", "LEASECTL_SERVE_PID": process.pid}
        refused = cli("status", **{name: str(value) for name, value in gone.items()})
        assert f"is gone: process {process.pid} (LEASECTL_SERVE_PID) has ended" in refused.err
        process.wait()

    def test_another_server_in_its_place_will_do(
        self, cli: Cli, started: dict[str, str], fault_proxy: StartFaultProxy
    ) -> None:
        end(started)
        env = {**started, "LEASE_PROXY_SERVER_URL": fault_proxy("T=1").url}
        assert cli("acquire", "-q", "-t", "T", **env).code == 0
