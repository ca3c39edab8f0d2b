"""A keeper whose installation is deleted: a virtual environment in a workspace that goes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasectl
from leasectl.state import keeper_process
from tests.kit.doctor_reports import doctor
from tests.kit.etcd.server import EtcdServer
from tests.kit.support import Cli, clean_environment
from tests.kit.waits import eventually

# It makes virtual environments.
pytestmark = pytest.mark.once

PACKAGE = Path(leasectl.__file__).parent


@pytest.fixture
def workspace(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """leasectl in a virtual environment of its own, on the same state directory."""
    folder = tmp_path / "ws"
    argv = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(argv, check=True, env=clean_environment())
    (libraries,) = folder.glob("lib/python*/site-packages")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, libraries / "leasectl", ignore=ignored)

    class Workspace(Cli):
        def command(self, *args: str) -> list[str]:
            return [str(folder / "bin" / "python"), "-m", "leasectl", *args]

    workspace = Workspace(cli.state_dir, tmp_path, clean_environment())
    yield workspace
    workspace.close()


def await_ready(cli: Cli) -> int:
    """Wait until a keeper has looked at all that is there now, and has loaded its code; its pid."""
    (keeper,) = eventually(cli.keepers)
    log = cli.state_dir / "keeper.log"
    eventually(lambda: log.exists() and "started" in log.read_text())
    (pipe,) = cli.state_dir.glob("keeper.[0-9]*")
    pipe.unlink()
    os.kill(keeper, keeper_process.CALL)
    eventually(pipe.exists, what="it has begun another round")
    sleeps_in = Path(f"/proc/{keeper}/wchan")
    eventually(lambda: "poll" in sleeps_in.read_text())
    return keeper


def leave_keeper(cli: Cli, workspace: Cli, tmp_path: Path) -> int:
    """Have a job of the workspace start a keeper, then delete the workspace; the keeper's pid."""
    cli.pool("own")
    workspace.ok("acquire", "-q", "own", "--release-after", "300s")
    keeper = await_ready(cli)
    assert str(tmp_path / "ws") in Path(f"/proc/{keeper}/environ").read_text()
    shutil.rmtree(tmp_path / "ws")
    return keeper


def test_leases_of_other_jobs_are_released_all_the_same(
    cli: Cli, workspace: Cli, tmp_path: Path
) -> None:
    old = leave_keeper(cli, workspace, tmp_path)
    guard = cli.spawn(["sleep", "1000"])
    cli.ok("acquire", "-q", "own", "-w", "0", "--guard-pid", str(guard.pid))
    (new,) = eventually(cli.keepers)
    assert new != old
    guard.kill()
    eventually(lambda: len(cli.held()) == 1, what="the guard's lease is given back")
    eventually(lambda: not Path(f"/proc/{old}").exists(), what="the old keeper ends")


def test_the_keeper_that_is_left_does_its_work(cli: Cli, workspace: Cli, tmp_path: Path) -> None:
    """Where no other command comes by: it has loaded what it needs."""
    cli.pool("own")
    guard = cli.spawn(["sleep", "1000"])
    workspace.ok("acquire", "-q", "own", "--guard-pid", str(guard.pid))
    await_ready(cli)
    shutil.rmtree(tmp_path / "ws")
    guard.kill()
    eventually(lambda: cli.held() == {}, what="the guard's lease is given back")


def test_the_keeper_that_is_left_goes_on_with_leases_on_a_server(
    cli: Cli, workspace: Cli, tmp_path: Path, etcd: EtcdServer, prefix: str
) -> None:
    url = etcd.endpoints[0].replace("http", "etcd") + prefix
    cli.ok("pool", "create", "far", "--count", "1", "--backend", url)
    guard = cli.spawn(["sleep", "1000"])
    guarded = ("--guard-pid", str(guard.pid), "--ttl", "8s")
    workspace.ok("acquire", "-q", "far", *guarded, "--backend", url)
    log = cli.state_dir / "keeper.log"
    await_ready(cli)
    shutil.rmtree(tmp_path / "ws")
    # Nobody else gets it for longer than its ttl.
    elsewhere = {"LEASECTL_STATE_DIR": str(tmp_path / "elsewhere")}
    waiting = cli.start("acquire", "-q", "far", "-w", "10s", "--backend", url, **elsewhere)
    assert waiting.finish().code == 75
    guard.kill()
    eventually(lambda: "released far-" in log.read_text(), what="no code was missing for it")


def test_leases_of_other_jobs_on_a_server_are_renewed_and_released(
    cli: Cli, workspace: Cli, tmp_path: Path, etcd: EtcdServer, prefix: str
) -> None:
    leave_keeper(cli, workspace, tmp_path)
    url = etcd.endpoints[0].replace("http", "etcd") + prefix
    cli.ok("pool", "create", "far", "--count", "1", "--backend", url)
    guard = cli.spawn(["sleep", "1000"])
    guarded = ("--guard-pid", str(guard.pid), "--ttl", "8s")
    handle = cli.ok("acquire", "-q", "far", *guarded, "--backend", url).strip()
    # Nobody else gets it for longer than its ttl.
    waiting = cli.start("acquire", "-q", "far", "-w", "10s", "--backend", url)
    assert waiting.finish().code == 75
    held = json.loads(cli.ok("cat", "--handle", handle, "--format", "json"))
    assert (held["state"], held["acquisition"]) == ("held", 1)
    guard.kill()
    waiting = cli.start("acquire", "-q", "far", "-w", "5m", "--backend", url)
    assert waiting.finish().code == 0


def test_doctor_says_so_and_starts_another(cli: Cli, workspace: Cli, tmp_path: Path) -> None:
    old = leave_keeper(cli, workspace, tmp_path)
    found = doctor(cli)["keeper"]
    assert found["status"] == "warn"
    assert f"running, pid {old}, but its code" in found["what"]
    assert str(tmp_path / "ws") in found["what"]
    assert doctor(cli, "--fix")["keeper"]["status"] == "ok"
    assert old not in eventually(cli.keepers)
