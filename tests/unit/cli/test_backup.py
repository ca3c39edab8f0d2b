"""A state directory in use is saved, and restored without granting a fencing token twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kit.serving import Serving
from tests.kit.support import Cli
from tests.kit.waits import eventually

FILE = "saved"


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return str(tmp_path / FILE)


def _lease(cli: Cli, handle: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli.ok("cat", handle, "--format", "json"))["leases"][0]
    return found


def _acquire(cli: Cli, *options: str) -> str:
    return cli.ok("acquire", "T", *options).rstrip()


def test_new_directory_has_the_leases_and_names_files_of_the_backup(cli: Cli, saved: str) -> None:
    cli.pool("T")
    handle = _acquire(cli)
    cli.ok("backup", saved)
    assert Path(saved).stat().st_mode & 0o777 == 0o600
    before = Path(handle).read_text()
    cli.close()
    shutil.rmtree(cli.state_dir)
    restored = cli("restore", saved)
    assert restored.code == 0
    assert "with 1 held resource" in restored.err
    assert "may be granted again" in restored.err
    assert Path(handle).read_text() == before
    assert cli.ok("release", handle).split() == [before]


def test_fencing_tokens_go_on_above_all_earlier_ones(cli: Cli, saved: str) -> None:
    cli.pool("T", "a", "b")
    first = _lease(cli, _acquire(cli))
    cli.ok("backup", saved)
    for _ in range(3):
        unknown = _lease(cli, handle := _acquire(cli))
        cli.ok("release", handle)
    _acquire(cli)
    cli.ok("restore", saved)
    again = _lease(cli, _acquire(cli))
    assert first["fence"] < unknown["fence"] < again["fence"]
    assert again["name"] != first["name"]
    # Also where nothing is left of what came after the backup.
    cli.close()
    shutil.rmtree(cli.state_dir)
    cli.ok("restore", saved)
    assert _lease(cli, _acquire(cli))["fence"] > unknown["fence"]


def test_restored_lease_with_ttl_expires_unless_its_holder_renews_it(cli: Cli, saved: str) -> None:
    cli.pool("T", "a", "b")
    _acquire(cli, "--ttl", "2s")
    renewed = _acquire(cli, "--ttl", "1h")
    cli.ok("backup", saved)
    cli.ok("restore", saved)
    cli.ok("renew", renewed)
    third = _acquire(cli, "-w", "10m")
    assert _lease(cli, third)["name"] == "a"
    assert _lease(cli, renewed)["name"] == "b"


def test_backup_of_a_directory_in_use_is_one_moment_of_it(cli: Cli, saved: str) -> None:
    cli.pool("T", "a", "b", "c", "d")
    takers = [
        cli.start("run", "-q", "T", "-c", "2", "--", "sh", "-c", "sleep 0.01") for _ in range(8)
    ]
    copies = [f"{saved}.{number}" for number in range(4)]
    for each in copies:
        cli.ok("backup", each)
    assert [each.finish().code for each in takers] == [0] * 8
    for each in copies:
        cli.ok("restore", each)
        shown = json.loads(cli.ok("status", "--json"))["pools"][0]
        assert shown["held"] in (0, 2, 4)
        assert shown["queue"] == []


def test_restore_ends_those_who_wait_and_forgets_them(cli: Cli, saved: str) -> None:
    cli.pool("T", "only")
    handle = _acquire(cli)
    waiter = cli.start("acquire", "-q", "T")
    eventually(cli.waiting, "it to wait")
    cli.ok("backup", saved)
    cli.ok("restore", saved)
    ended = waiter.finish()
    assert ended.code == 73
    assert "replaced" in ended.err
    assert cli.waiting() == []
    assert Path(f"{cli.state_dir}/state.db.replaced").exists()
    cli.ok("release", handle)


def test_first_server_after_a_restore_says_so_and_no_later_one(cli: Cli, saved: str) -> None:
    cli.pool("T")
    cli.ok("backup", saved)
    cli.ok("restore", saved)
    assert "may be granted again" in Serving(cli).end().err
    assert "may be granted again" not in Serving(cli).end().err


def test_restore_ends_a_server(cli: Cli, saved: str) -> None:
    cli.pool("T")
    cli.ok("backup", saved)
    server = Serving(cli)
    cli.ok("restore", saved)
    ended = server.wait()
    assert ended.code == 73
    assert "replaced" in ended.err


@pytest.mark.parametrize("content", ["", "no database", None])
def test_what_is_no_backup_changes_nothing(cli: Cli, saved: str, content: str | None) -> None:
    cli.pool("T")
    if content is not None:
        Path(saved).write_text(content)
    before = cli.snapshot()
    refused = cli("restore", saved)
    assert refused.code == (66 if content is None else 65)
    assert saved in refused.err
    assert len(refused.err.splitlines()) == 1
    assert cli.snapshot() == before


def test_backup_that_cant_be_written_is_one_line(cli: Cli, tmp_path: Path) -> None:
    cli.pool("T")
    refused = cli("backup", str(tmp_path / "nowhere" / "file"))
    assert refused.code == 73
    assert "can't write the backup" in refused.err
    assert cli("backup", str(tmp_path / "x"), LEASECTL_STATE_DIR=str(tmp_path / "none")).code == 73
