"""What doctor says of the state directory as files, and which of them it removes."""

from __future__ import annotations

import fcntl
import os
import select
import stat
import tempfile
from pathlib import Path

import pytest

from leasectl.doctor import state_files
from leasectl.state.named_pipe import NamedPipe
from tests.kit.doctor_reports import (
    CORRUPT,
    UNWRITABLE,
    database,
    doctor,
    files,
)
from tests.kit.forking import ending, fork
from tests.kit.support import Cli
from tests.kit.waits import eventually

NOBODY = 65534


class TestTheDirectory:
    def test_open_to_others_is_mended_and_the_rest_looked_at(self, cli: Cli) -> None:
        cli.pool("T")
        cli.state_dir.chmod(0o755)
        report = doctor(cli, "--fix")
        assert (report.code, report.statuses()) == (0, {})
        assert report["state directory"]["fixed"] == "made it private (mode 0700)"
        assert report["database"]["status"] == "ok"
        assert stat.S_IMODE(cli.state_dir.stat().st_mode) == 0o700

    def test_a_symbolic_link_is_left_alone(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir(mode=0o777)
        untouched = (tmp_path / "real").stat().st_mtime_ns
        cli.state_dir.symlink_to(tmp_path / "real")
        report = doctor(cli, "--fix")
        assert (report.code, report["state directory"]["status"]) == (UNWRITABLE, "fail")
        assert "symbolic link" in report["state directory"]["what"]
        assert report["state directory"]["fixed"] is None
        assert os.listdir(tmp_path / "real") == []
        assert (tmp_path / "real").stat().st_mtime_ns == untouched  # no file was made for a try

    @pytest.mark.parametrize("is_there", [True, False])
    def test_in_a_folder_where_any_user_can_replace_it(
        self, cli: Cli, tmp_path: Path, is_there: bool
    ) -> None:
        parent = tmp_path / "open"
        parent.mkdir()
        parent.chmod(0o777)
        if is_there:
            (parent / "state").mkdir(mode=0o700)
        report = doctor(cli, LEASECTL_STATE_DIR=str(parent / "state"))
        finding = report["state directory"]
        assert (report.code, finding["status"]) == (UNWRITABLE, "fail")
        assert "can be replaced by any user" in finding["what"]
        assert finding["advice"].startswith(f"run: chmod +t {parent}")

    def test_read_only(self) -> None:
        with tempfile.TemporaryDirectory() as parent:
            os.chmod(parent, 0o755)
            directory = os.path.join(parent, "state")
            os.mkdir(directory, 0o500)
            if os.geteuid() == 0:
                os.chown(directory, NOBODY, NOBODY)

            def look_and_mend() -> None:
                if os.geteuid() == 0:
                    os.setuid(NOBODY)  # root may write where nobody may
                finding = state_files.state_directory(directory)
                assert (finding.status, finding.exit_code) == ("fail", UNWRITABLE)
                assert finding.mend is not None
                finding.mend()
                assert state_files.state_directory(directory).status == "ok"

            assert ending(fork(look_and_mend)) == 0


class TestPipesOfShells:
    def test_what_a_killed_shell_left_is_removed(self, cli: Cli, tmp_path: Path) -> None:
        cli.pool("T")
        left, new, other = (tmp_path / f"leasectl-{n}" for n in ("12-345", "12-346", "12-x"))
        for path in (left, new, other):
            os.mkfifo(path)
        for path in (left, other):
            os.utime(path, (1, 1))
        (tmp_path / "leasectl-1-2").write_text("")
        os.utime(tmp_path / "leasectl-1-2", (1, 1))
        report = doctor(cli, TMPDIR=str(tmp_path))
        assert report.statuses() == {"files": "warn"}
        assert str(left) in report["files"]["what"]
        assert doctor(cli, "--fix", TMPDIR=str(tmp_path)).statuses() == {}
        assert not left.exists()
        assert new.exists() and other.exists() and (tmp_path / "leasectl-1-2").exists()


class TestTheLock:
    def test_a_fifo_in_its_place(self, cli: Cli) -> None:
        cli.pool("T")
        (cli.state_dir / "state.lock").unlink()
        os.mkfifo(cli.state_dir / "state.lock")
        report = doctor(cli)
        assert (report.code, report["lock"]["status"]) == (UNWRITABLE, "fail")
        assert "not a regular file" in report["lock"]["what"]

    def test_a_lock_that_is_never_free(self, cli: Cli) -> None:
        cli.pool("T")
        with open(cli.state_dir / "state.lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            finding = state_files.state_lock(str(cli.state_dir), patience_seconds=0)
        assert finding.status == "fail"
        assert f"process {os.getpid()}" in finding.what


class TestTheDatabase:
    def test_a_damaged_page(self, cli: Cli) -> None:
        cli.pool("T", *(f"r{number:04d}" for number in range(2000)))
        with database(cli) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with open(cli.state_dir / "state.db", "r+b") as file:
            file.seek(-4096 * 3, os.SEEK_END)
            file.write(b"\xff" * 4096)
        report = doctor(cli)
        assert (report.code, report["database"]["status"]) == (CORRUPT, "fail")

    def test_one_that_has_gone_missing_while_its_log_is_there(self, cli: Cli) -> None:
        cli.ok("pool", "create", "T", "--count", "1")  # a process that ends without closing it
        (cli.state_dir / "state.db").unlink()
        report = doctor(cli)
        assert (report.code, report["database"]["status"]) == (CORRUPT, "fail")


class TestFiles:
    def test_what_no_record_knows_is_removed_and_nothing_else(self, cli: Cli) -> None:
        cli.pool("T", "a")
        handle = cli.ok("acquire", "-t", "T").strip()
        # Quiet: who shows how things stand also tidies up.
        waiter = cli.start("acquire", "-q", "-t", "T")
        eventually(cli.waiting)
        Path(f"{handle}.lock").touch()
        kept = files(cli)
        folder = cli.state_dir / "handles"
        (folder / "T-ghost1").write_text("a")
        (folder / "T-ghost1.lock").touch()
        Path(f"{handle}.new").write_text("a")
        os.mkfifo(cli.state_dir / "waiters" / "waiter-0123456789abcdef")
        os.mkfifo(cli.state_dir / "waiters" / "T-ghost1.run")
        (folder / "notes").write_text("somebody's own")
        report = doctor(cli)
        assert report["files"]["status"] == "warn"
        assert report["files"]["what"].startswith("5 files without a record: ")
        report = doctor(cli, "--fix")
        assert (report["files"]["status"], report["files"]["fixed"]) == ("ok", "removed 5 files")
        assert files(cli) == sorted([*kept, "handles/notes"])
        cli.ok("release", "--handle", handle)
        assert waiter.finish().code == 0

    def test_who_waits_for_a_server_is_not_woken_by_the_question(self, cli: Cli) -> None:
        cli.pool("T")
        cli.ok("acquire", "-t", "T")
        with database(cli) as db:
            db.execute("UPDATE handle SET state = 'acquiring', backend = 'http://x'")
            ((handle_id,),) = db.execute("SELECT id FROM handle")
        waiter = NamedPipe(str(cli.state_dir / "waiters" / f"{handle_id}.1.cancel"))
        poll = select.poll()
        poll.register(waiter.fd, select.POLLIN)
        assert doctor(cli)["files"]["status"] == "ok"
        assert poll.poll(0) == []

    def test_a_lock_that_somebody_holds_keeps_its_name(self, cli: Cli) -> None:
        cli.pool("T")
        path = cli.state_dir / "handles" / "T-ghost1.lock"
        path.touch()
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert doctor(cli)["files"]["status"] == "ok"
        assert doctor(cli)["files"]["status"] == "warn"
