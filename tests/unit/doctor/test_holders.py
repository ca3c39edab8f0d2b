"""What doctor says of those who hold something, and of the keeper."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leasectl.doctor.findings import Finding
from leasectl.doctor.records import ready_to_be_taken
from leasectl.model import Request
from leasectl.state.uses import SeenMark, Uses
from leasectl.system.clock import boottime_seconds
from tests.kit.doctor_reports import (
    database,
    doctor,
    kill_keepers,
)
from tests.kit.support import Cli, stop
from tests.kit.waits import eventually


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
        "args",
        [("--ttl", "1h", "--scope", "test"), ("--ttl", "1h"), ("--release-after", "1h")],
    )
    def test_a_handle_that_will_end_by_itself_is_fine(
        self, cli: Cli, tmp_path: Path, args: tuple[str, ...]
    ) -> None:
        cli.pool("T", "a")
        cli.ok("acquire", "-t", "T", *args, SHARED_DIR=str(tmp_path))
        assert doctor(cli).statuses() == {}

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
        assert " elsewhere\n" in cli.ok("status")

    def test_what_the_dead_hold_is_given_back_by_fix(self, cli: Cli) -> None:
        cli.pool("T", "a")
        guard = cli.spawn(["sleep", "1000"])
        cli.ok("acquire", "-t", "T", "--guard-pid", str(guard.pid))
        for pid in eventually(cli.keepers):
            stop(pid, cli.state_dir)
        guard.kill()
        assert doctor(cli)["dead holders"]["status"] == "warn"
        report = doctor(cli, "--fix")
        assert report["dead holders"]["fixed"] == "released their leases: a"
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
            stop(pid, cli.state_dir)
        with database(cli) as db:
            db.execute("UPDATE timer SET due = 0")
        report = doctor(cli)
        assert report["keeper"]["status"] == "warn"
        assert "late" in report["keeper"]["what"]


def found(cli: Cli, *, ends_in: float) -> Finding:
    """What is said of a name that is ready for a reclaim which ends then."""
    cli.pool("T", "a")
    handle = cli.hold(Request("T"))
    with cli.service() as service:
        with service.state.transaction():
            mark = SeenMark("id", "an operator", boottime_seconds() + ends_in, is_ready=True)
            Uses(service.state).see(handle, "a", mark)
        return ready_to_be_taken(service)


def test_what_is_ready_is_told(cli: Cli) -> None:
    finding = found(cli, ends_in=60.0)
    assert (finding.status, finding.what) == ("ok", "ready to take back: a")


def test_what_no_reclaim_has_come_for_in_time_is_a_warning(cli: Cli) -> None:
    finding = found(cli, ends_in=-100.0)
    assert finding.status == "warn"
    assert "no reclaim took the lease in time" in finding.what
