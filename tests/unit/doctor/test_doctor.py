"""``leasectl doctor``: what it finds in all, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.doctor.findings import Finding, exit_code
from tests.kit.doctor_reports import (
    CORRUPT,
    UNWRITABLE,
    USAGE,
    database_dump,
    doctor,
    files,
    kill_keepers,
)
from tests.kit.support import Cli


class TestAHealthyMachine:
    def test_all_is_well(self, cli: Cli) -> None:
        cli.pool("T")
        report = doctor(cli)
        assert (report.code, report.statuses(), report.err) == (0, {}, "")
        assert set(report.checks) == {
            *("version", "backend", "lease proxy", "secret files", "/proc", "pidfd", "SHARED_DIR"),
            *("state directory", "file system", "flock", "lock", "database", "records"),
            *("keeper", "dead holders", "unguarded", "foreign guards", "held for long", "files"),
            *("reclaims", "memberships", "queues", "circular waits", "once records", "events"),
        }
        for check in report.checks.values():
            assert [*check] == ["name", "status", "what", "advice", "fixed"]

    def test_it_says_which_backend_and_why(self, cli: Cli) -> None:
        assert doctor(cli)["backend"]["what"].startswith("local:, the embedded pool")
        report = doctor(cli, LEASECTL_BACKEND="none:")
        assert report["backend"]["what"] == "none:, chosen by LEASECTL_BACKEND"
        report = doctor(cli, "--backend", "local:", LEASECTL_BACKEND="none:")
        assert report["backend"]["what"] == "local:, chosen by --backend"

    @pytest.mark.parametrize(
        "variable",
        [
            *("LEASECTL_TOKEN_FILE", "LEASECTL_USER_FILE", "LEASECTL_KEY_FILE"),
            "LEASECTL_BOSKOS_PASSWORD_FILE",
        ],
    )
    def test_a_secret_that_others_can_read_is_reported(
        self, cli: Cli, tmp_path: Path, variable: str
    ) -> None:
        file = tmp_path / "secret"
        file.write_text("s3cret")
        file.chmod(0o640)
        report = doctor(cli, **{variable: str(file)})
        assert report.statuses() == {"secret files": "warn"}
        assert report["secret files"]["what"] == f"other users can read {file}"
        assert report["secret files"]["advice"] == f"run: chmod 600 {file}"
        file.chmod(0o600)
        assert doctor(cli, **{variable: str(file)}).statuses() == {}

    def test_the_table_says_the_same(self, cli: Cli) -> None:
        cli.pool("T")
        lines = cli.ok("doctor").splitlines()
        assert lines[1].startswith("ok    backend          local:, the embedded pool of")
        assert lines[-1] == "25 ok, 0 warnings, 0 failures"
        cli.ok("acquire", "-t", "T")
        assert cli.ok("doctor").splitlines()[-1] == "24 ok, 1 warning, 0 failures"

    def test_a_state_directory_that_isnt_there_isnt_made(self, cli: Cli) -> None:
        report = doctor(cli)
        assert (report.code, report.statuses()) == (0, {})
        assert "doesn't exist yet" in report["state directory"]["what"]
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


class TestSharedDirAndProxy:
    def test_shared_dir(self, cli: Cli, tmp_path: Path) -> None:
        assert "not set" in doctor(cli)["SHARED_DIR"]["what"]
        (tmp_path / "leases").write_text("a\nb\n")
        report = doctor(cli, SHARED_DIR=str(tmp_path))
        assert report["SHARED_DIR"]["what"] == f"{tmp_path}; its file leases lists 2 names"
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
