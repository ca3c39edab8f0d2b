"""``leasectl doctor``: what it finds, what it mends, what it leaves alone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from leasectl.doctor import machine as machine_checks
from leasectl.doctor import records as record_checks
from leasectl.doctor.examination import Examination, Surroundings, exit_code
from leasectl.doctor.findings import Finding
from leasectl.leases.targets import Caller
from tests.kit.support import Cli, Finished, ending_of, eventually, fork

NOBODY = 65534
CORRUPT, UNWRITABLE, USAGE = 65, 73, 64


class Report:
    """What one run of `doctor --json` said."""

    def __init__(self, finished: Finished) -> None:
        self.code = finished.code
        self.err = finished.err
        self.checks: dict[str, Any] = {
            check["name"]: check for check in json.loads(finished.out)["checks"]
        }

    def __getitem__(self, name: str) -> Any:
        return self.checks[name]

    def statuses(self) -> dict[str, str]:
        """The checks that aren't ok."""
        return {n: c["status"] for n, c in self.checks.items() if c["status"] != "ok"}


def doctor(cli: Cli, *args: str, **env: str | None) -> Report:
    return Report(cli("doctor", "--json", *args, **env))


@contextlib.contextmanager
def database(cli: Cli) -> Iterator[sqlite3.Connection]:
    """The database behind leasectl's back."""
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db", timeout=10)) as db, db:
        yield db


def find(findings: Sequence[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def examine(directory: Path, **seams: Any) -> list[Finding]:
    around = Surroundings(str(directory), "local:", "a test", Caller("me@host", "host"))
    return list(Examination(around, **seams).findings(fix=False))


class TestAHealthyMachine:
    def test_all_is_well(self, cli: Cli) -> None:
        cli.pool("T")
        report = doctor(cli)
        assert (report.code, report.statuses(), report.err) == (0, {}, "")
        assert set(report.checks) == {
            *("version", "backend", "lease proxy", "/proc", "pidfd", "SHARED_DIR"),
            *("state directory", "file system", "flock", "lock", "database", "records"),
            *("keeper", "dead holders", "unguarded", "foreign guards", "held for long", "files"),
        }
        for check in report.checks.values():
            assert [*check] == ["name", "status", "what", "advice", "fixed"]

    def test_it_says_which_backend_and_why(self, cli: Cli) -> None:
        assert doctor(cli)["backend"]["what"].startswith("local:, chosen by the default")
        report = doctor(cli, LEASECTL_BACKEND="none:")
        assert report["backend"]["what"] == "none:, chosen by LEASECTL_BACKEND"
        report = doctor(cli, "--backend", "local:", LEASECTL_BACKEND="none:")
        assert report["backend"]["what"] == "local:, chosen by --backend"

    def test_the_table_says_the_same(self, cli: Cli) -> None:
        cli.pool("T")
        lines = cli.ok("doctor").splitlines()
        assert lines[1].startswith("ok    backend          local:, chosen by the default")
        assert lines[-1] == "18 ok, 0 warnings, 0 failures"
        cli.ok("acquire", "-t", "T")
        assert cli.ok("doctor").splitlines()[-1] == "17 ok, 1 warning, 0 failures"

    def test_the_table_fits_the_width(self, cli: Cli) -> None:
        cli.pool("T")
        cli.ok("acquire", "-t", "T")
        for line in cli.ok("doctor", COLUMNS="80").splitlines():
            # A path is never broken: it is there to be copied.
            assert len(line) <= 80 or len(line.split()[-1]) > 50

    def test_a_state_directory_that_isnt_there_isnt_made(self, cli: Cli) -> None:
        report = doctor(cli)
        assert (report.code, report.statuses()) == (0, {})
        assert "not there yet" in report["state directory"]["what"]
        assert not cli.state_dir.exists()

    def test_without_fix_it_changes_nothing(self, cli: Cli) -> None:
        cli.pool("T")
        guard = cli.spawn(["sleep", "1000"])
        cli.ok("acquire", "-t", "T", "--guard-pid", str(guard.pid))
        kill_keepers(cli)
        guard.kill()
        (cli.state_dir / "handles" / "T-abcdef").write_text("")
        before = list(database_dump(cli)), files(cli)
        report = doctor(cli)
        assert report.statuses() == {"keeper": "warn", "dead holders": "warn", "files": "warn"}
        assert (list(database_dump(cli)), files(cli)) == before
        assert cli.keepers() == []


def kill_keepers(cli: Cli) -> None:
    for pid in eventually(cli.keepers):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cli.keepers())


def database_dump(cli: Cli) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db:
        yield from list(db.iterdump())


def files(cli: Cli) -> list[str]:
    found = (path.relative_to(cli.state_dir).as_posix() for path in cli.state_dir.rglob("*"))
    return sorted(path for path in found if not path.startswith("state.db-"))


class TestTheStateDirectory:
    def test_open_to_others(self, cli: Cli) -> None:
        cli.pool("T")
        cli.state_dir.chmod(0o777)
        report = doctor(cli)
        assert (report.code, report.statuses()) == (UNWRITABLE, {"state directory": "fail"})
        assert "mode 0777" in report["state directory"]["what"]
        assert "chmod 700" in report["state directory"]["advice"]
        assert "database" not in report.checks
        assert stat.S_IMODE(cli.state_dir.stat().st_mode) == 0o777

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
        cli.state_dir.symlink_to(tmp_path / "real")
        report = doctor(cli, "--fix")
        assert (report.code, report["state directory"]["status"]) == (UNWRITABLE, "fail")
        assert "symbolic link" in report["state directory"]["what"]
        assert report["state directory"]["fixed"] is None
        assert os.listdir(tmp_path / "real") == []

    def test_a_file(self, cli: Cli) -> None:
        cli.state_dir.write_text("")
        report = doctor(cli)
        assert (report.code, report["state directory"]["status"]) == (UNWRITABLE, "fail")

    def test_nowhere_to_make_it(self, cli: Cli, tmp_path: Path) -> None:
        report = doctor(cli, LEASECTL_STATE_DIR=str(tmp_path / "no" / "where"))
        assert (report.code, report["state directory"]["status"]) == (UNWRITABLE, "fail")

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
                finding = machine_checks.state_directory(directory)
                assert (finding.status, finding.exit_code) == ("fail", UNWRITABLE)
                assert finding.mend is not None
                finding.mend()
                assert machine_checks.state_directory(directory).status == "ok"

            assert ending_of(fork(look_and_mend)) == 0

    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        full = os.statvfs_result((4096, 4096, 1000, 10, 10, 1000, 100, 100, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _: full)
        finding = machine_checks.file_system(str(tmp_path))
        assert (finding.status, finding.exit_code) == ("fail", UNWRITABLE)
        assert finding.what.endswith(": full")

    def test_a_network_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine_checks, "_file_system_type", lambda _: "nfs4")
        finding = machine_checks.file_system(str(tmp_path))
        assert finding.status == "warn"
        assert "one machine" in (finding.advice or "")

    def test_the_file_system_of_proc_is_proc(self) -> None:
        assert machine_checks._file_system_type("/proc/self") == "proc"


class TestFlock:
    def test_a_real_one_excludes(self, tmp_path: Path) -> None:
        assert machine_checks.exclusion(str(tmp_path), fcntl.flock).status == "ok"
        assert os.listdir(tmp_path) == []

    def test_one_that_lets_two_in_is_noticed(self, state_dir: Path) -> None:
        state_dir.mkdir(mode=0o700)
        findings = examine(state_dir, flock=lambda fd, operation: None)
        finding = find(findings, "flock")
        assert finding.status == "fail"
        assert "doesn't exclude" in finding.what
        assert exit_code(findings) == UNWRITABLE
        assert os.listdir(state_dir) == []

    def test_one_that_is_never_free_again_is_noticed(self, tmp_path: Path) -> None:
        parent = os.getpid()

        def stuck(fd: int, operation: int) -> None:
            if os.getpid() != parent:
                raise BlockingIOError

        assert machine_checks.exclusion(str(tmp_path), stuck).status == "fail"

    def test_one_that_isnt_there_is_noticed(self, tmp_path: Path) -> None:
        def missing(fd: int, operation: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        finding = machine_checks.exclusion(str(tmp_path), missing)
        assert (finding.status, finding.exit_code) == ("fail", UNWRITABLE)
        assert "No locks available" in finding.what


class TestTheKernel:
    def test_a_pidfd_that_works(self) -> None:
        assert machine_checks.pidfd(os.pidfd_open).status == "ok"

    @pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
    def test_a_pidfd_that_is_blocked(self, tmp_path: Path, code: int) -> None:
        def blocked(pid: int) -> int:
            raise OSError(code, os.strerror(code))

        findings = examine(tmp_path / "state", pidfd_open=blocked)
        finding = find(findings, "pidfd")
        assert (finding.status, exit_code(findings)) == ("fail", 1)
        assert "seccomp" in (finding.advice or "")

    def test_a_python_without_pidfd(self) -> None:
        assert machine_checks.pidfd(None).status == "fail"

    def test_a_lock_that_is_never_free(self, cli: Cli) -> None:
        cli.pool("T")
        with open(cli.state_dir / "state.lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            finding = record_checks.lock(str(cli.state_dir), patience_seconds=0)
        assert finding.status == "fail"
        assert f"process {os.getpid()}" in finding.what


class TestSharedDirAndProxy:
    def test_shared_dir(self, cli: Cli, tmp_path: Path) -> None:
        assert "not set" in doctor(cli)["SHARED_DIR"]["what"]
        (tmp_path / "leases").write_text("a\nb\n")
        report = doctor(cli, SHARED_DIR=str(tmp_path))
        assert report["SHARED_DIR"]["what"] == f"{tmp_path}; leases lists 2 names"
        report = doctor(cli, SHARED_DIR=str(tmp_path / "absent"))
        assert (report["SHARED_DIR"]["status"], report.code) == ("fail", UNWRITABLE)
        (tmp_path / "leases").write_text("$(id)\n")
        report = doctor(cli, SHARED_DIR=str(tmp_path))
        assert (report["SHARED_DIR"]["status"], report.code) == ("fail", CORRUPT)

    def test_a_backend_that_there_isnt(self, cli: Cli) -> None:
        report = doctor(cli, LEASECTL_BACKEND="gopher://x")
        assert (report.code, report["backend"]["status"]) == (USAGE, "fail")

    def test_a_lease_proxy_that_isnt_used(self, cli: Cli) -> None:
        url = "http://me:secret@proxy:8080"
        report = doctor(cli, LEASE_PROXY_SERVER_URL=url, LEASECTL_BACKEND="local:")
        assert report["lease proxy"]["status"] == "warn"
        assert report["lease proxy"]["what"] == (
            "LEASE_PROXY_SERVER_URL=http://proxy:8080; not used, because of LEASECTL_BACKEND"
        )


class TestTheDatabase:
    def test_garbage(self, cli: Cli) -> None:
        cli.pool("T")
        (cli.state_dir / "state.db").write_bytes(b"x" * 8192)
        for args in ((), ("--fix",)):
            report = doctor(cli, *args)
            assert (report.code, report["database"]["status"]) == (CORRUPT, "fail")
            assert "start afresh" in report["database"]["advice"]
        assert (cli.state_dir / "state.db").read_bytes() == b"x" * 8192

    def test_truncated(self, cli: Cli) -> None:
        cli.pool("T")
        (cli.state_dir / "state.db").write_bytes(b"")
        report = doctor(cli)
        assert (report.code, report["database"]["status"]) == (CORRUPT, "fail")

    def test_from_a_newer_version(self, cli: Cli) -> None:
        cli.pool("T")
        with database(cli) as db:
            db.execute("PRAGMA user_version = 99")
        report = doctor(cli)
        assert (report.code, report["database"]["status"]) == (CORRUPT, "fail")
        assert "newer version" in report["database"]["what"]

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


class TestRecords:
    def held(self, cli: Cli) -> str:
        cli.pool("T", "a", "b")
        return os.path.basename(cli.ok("acquire", "-t", "T", "-c", "2").strip())

    def check(self, cli: Cli, *said: str) -> None:
        """The disagreement is reported, mended, and mended for good."""
        report = doctor(cli)
        assert (report.code, report["records"]["status"]) == (CORRUPT, "fail")
        for text in said:
            assert text in report["records"]["what"]
        report = doctor(cli, "--fix")
        assert (report.code, report["records"]["status"]) == (0, "ok")
        assert report["records"]["fixed"].startswith("settled: ")
        assert doctor(cli)["records"]["status"] == "ok"

    def test_a_resource_whose_owner_doesnt_know_of_it_is_freed(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("DELETE FROM lease WHERE name = 'a'")
        self.check(cli, f"a is held by {handle}, which doesn't know of it")
        assert cli.held() == {"b": handle}
        assert cli.ok("cat", "--handle", handle) == "b\n"

    def test_a_resource_that_is_freed_goes_to_who_waits(self, cli: Cli) -> None:
        self.held(cli)
        waiter = cli.start("acquire", "-t", "T", "--output", "names")
        eventually(cli.waiting)
        with database(cli) as db:
            db.execute("DELETE FROM lease WHERE name = 'a'")
        doctor(cli, "--fix")
        assert waiter.finish().out == "a\n"

    def test_a_lease_on_a_resource_that_is_anothers_is_dropped(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("UPDATE resource SET owner = NULL WHERE name = 'a'")
        self.check(cli, f"{handle} claims a, which isn't its own")
        assert cli.held() == {"b": handle}
        assert Path(cli.state_dir / "handles" / handle).read_text() == "b"

    def test_a_handle_that_loses_its_last_lease_is_released(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("DELETE FROM resource")
        self.check(cli, f"{handle} claims a", f"{handle} claims b", 'pool "T" counts 2')
        assert cli.query("SELECT state, lost FROM handle") == [("released", 1)]

    def test_a_lease_of_no_handle_is_dropped_and_its_resource_freed(self, cli: Cli) -> None:
        self.held(cli)
        with database(cli) as db:
            db.execute("DELETE FROM handle")
        self.check(cli, "without being a held handle")
        assert cli.held() == {}
        assert cli.query("SELECT * FROM lease") == []

    def test_a_handle_that_is_held_and_holds_nothing_is_released(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("DELETE FROM lease")
            db.execute("UPDATE resource SET owner = NULL")
        self.check(cli, f"{handle} is held but holds nothing")

    def test_a_fence_is_that_of_the_resource(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("UPDATE lease SET fence = 77 WHERE name = 'a'")
        self.check(cli, f"{handle} shows fence 77 for a, which has 1")
        assert cli.query("SELECT fence FROM lease WHERE name = 'a'") == [(1,)]

    def test_a_ticket_that_nobody_waits_with_is_taken_away(self, cli: Cli) -> None:
        self.held(cli)
        with database(cli) as db:
            db.execute("INSERT INTO ticket VALUES ('T', 7, 'T-ghost1', 'ghost', 1, 0, NULL, 'p')")
        self.check(cli, "T-ghost1 stands in a queue and isn't acquiring")
        assert cli.waiting() == []

    def test_a_capacity_is_counted_again(self, cli: Cli) -> None:
        self.held(cli)
        with database(cli) as db:
            db.execute("UPDATE pool SET capacity = 9")
        self.check(cli, 'pool "T" counts 9 resources and has 2')

    def test_a_release_armed_for_nobody_is_taken_away(self, cli: Cli) -> None:
        self.held(cli)
        with database(cli) as db:
            db.execute("INSERT INTO timer VALUES ('T-ghost1', '', 1, 0)")
        self.check(cli, "a release is armed for T-ghost1, which isn't there")
        assert cli.query("SELECT * FROM timer") == []

    @pytest.mark.parametrize("content", [None, "", "other"])
    def test_a_names_file_is_written_anew(self, cli: Cli, content: str | None) -> None:
        handle = self.held(cli)
        path = cli.state_dir / "handles" / handle
        path.unlink()
        if content is not None:
            path.write_text(content)
        self.check(cli, f"{path} doesn't say what the handle holds")
        assert path.read_text() == "a\nb"

    def test_a_dry_run_holds_nothing_and_is_fine(self, cli: Cli) -> None:
        cli.ok("acquire", "-t", "T", "--backend", "none:")
        assert doctor(cli).statuses() == {}


class TestHolders:
    def test_an_unguarded_handle_is_shown_and_never_released(self, cli: Cli) -> None:
        cli.pool("T", "a")
        handle = os.path.basename(cli.ok("acquire", "-t", "T").strip())
        report = doctor(cli, "--fix")
        assert (report.code, report.statuses()) == (0, {"unguarded": "warn"})
        assert f"{handle} (a, held for " in report["unguarded"]["what"]
        assert f"leasectl release --handle {handle}" in report["unguarded"]["advice"]
        assert cli.held() == {"a": handle}
        cli.ok("release", "--handle", handle)
        assert doctor(cli).statuses() == {}

    @pytest.mark.parametrize(
        "args", [("--ttl", "1h", "--scope", "test"), ("--release-after", "1h")]
    )
    def test_a_handle_that_will_end_by_itself_is_fine(
        self, cli: Cli, tmp_path: Path, args: tuple[str, ...]
    ) -> None:
        cli.pool("T", "a")
        cli.ok("acquire", "-t", "T", *args, SHARED_DIR=str(tmp_path))
        assert doctor(cli).statuses() == {}

    def test_a_ttl_that_the_keeper_renews_ends_nothing(self, cli: Cli) -> None:
        cli.pool("T", "a")
        cli.ok("acquire", "-t", "T", "--ttl", "1h")
        assert doctor(cli).statuses() == {"unguarded": "warn"}

    def test_a_guard_in_another_pid_namespace_is_shown_and_never_released(self, cli: Cli) -> None:
        cli.pool("T", "a")
        guard = cli.spawn(["sleep", "1000"])
        cli.ok("acquire", "-t", "T", "--guard-pid", str(guard.pid))
        with database(cli) as db:
            boot, _, pid, start = str(db.execute("SELECT guard FROM handle").fetchone()[0]).split(
                ":"
            )
            db.execute("UPDATE handle SET guard = ?", (f"{boot}:1:{pid}:{start}",))
        guard.kill()
        report = doctor(cli, "--fix")
        assert (report.code, report.statuses()) == (0, {"foreign guards": "warn"})
        assert "leasectl release --handle T-" in report["foreign guards"]["advice"]
        assert list(cli.held()) == ["a"]
        assert " elsewhere " in cli.ok("status")

    def test_what_the_dead_hold_is_given_back_by_fix(self, cli: Cli) -> None:
        cli.pool("T", "a")
        guard = cli.spawn(["sleep", "1000"])
        cli.ok("acquire", "-t", "T", "--guard-pid", str(guard.pid))
        for pid in eventually(cli.keepers):
            os.kill(pid, signal.SIGSTOP)
        guard.kill()
        assert doctor(cli)["dead holders"]["status"] == "warn"
        report = doctor(cli, "--fix")
        assert report["dead holders"]["fixed"] == "gave back what they held: a"
        assert cli.held() == {}

    def test_one_that_was_held_for_days_is_shown(self, cli: Cli) -> None:
        cli.pool("T", "a")
        cli.ok("acquire", "-t", "T", "--release-after", "30d")
        with database(cli) as db:
            db.execute("UPDATE lease SET acquire_time = acquire_time - 3 * 86400")
        report = doctor(cli)
        assert report.statuses() == {"held for long": "warn"}
        assert "held for 3d" in report["held for long"]["what"]


class TestKeeper:
    def test_one_that_is_needed_is_started(self, cli: Cli) -> None:
        cli.pool("T")
        cli.ok("acquire", "-t", "T", "--release-after", "1h")
        kill_keepers(cli)
        assert doctor(cli)["keeper"]["status"] == "warn"
        assert cli.keepers() == []
        report = doctor(cli, "--fix")
        (pid,) = cli.keepers()
        assert report["keeper"]["fixed"] == f"started it, pid {pid}"
        assert report["keeper"]["what"].startswith(f"running, pid {pid}, log in ")

    def test_one_that_is_late_is_shown(self, cli: Cli) -> None:
        cli.pool("T")
        cli.ok("acquire", "-t", "T", "--release-after", "1h")
        for pid in eventually(cli.keepers):
            os.kill(pid, signal.SIGSTOP)
        with database(cli) as db:
            db.execute("UPDATE timer SET due = 0")
        report = doctor(cli)
        assert report["keeper"]["status"] == "warn"
        assert "late" in report["keeper"]["what"]


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
        assert report["files"]["what"].startswith("5 files that no record knows: ")
        report = doctor(cli, "--fix")
        assert (report["files"]["status"], report["files"]["fixed"]) == ("ok", "removed 5 files")
        assert files(cli) == sorted([*kept, "handles/notes"])
        cli.ok("release", "--handle", handle)
        assert waiter.finish().code == 0

    def test_a_lock_that_somebody_holds_keeps_its_name(self, cli: Cli) -> None:
        cli.pool("T")
        path = cli.state_dir / "handles" / "T-ghost1.lock"
        path.touch()
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert doctor(cli)["files"]["status"] == "ok"
        assert doctor(cli)["files"]["status"] == "warn"


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        *[((), 0), ((1,), 1), ((64, 1), 64), ((73, 69, 1), 73), ((73, 65, 64), 65)],
        *[((66, 69), 66), ((77, 64), 77), ((79,), 1)],
    ],
)
def test_the_exit_code_is_that_of_the_worst_failure(codes: tuple[int, ...], worst: int) -> None:
    findings = [Finding("fail", "", exit_code=code) for code in codes]
    assert exit_code([*findings, Finding("warn", "", exit_code=65)]) == worst
