"""What doctor says of the kernel and of the file system."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import Context
from leasectl.doctor import machine
from leasectl.doctor.examination import Examination
from leasectl.doctor.findings import Finding, exit_code
from leasectl.doctor.machine import Surroundings
from tests.kit.doctor_reports import (
    UNWRITABLE,
)


def find(findings: Sequence[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def examine(directory: Path, **seams: Any) -> list[Finding]:
    around = Surroundings(
        str(directory), Context("local:", caller=Caller("me@host", "host")), "a test"
    )
    return list(Examination(around, fix=False, **seams).findings())


class TestTheFileSystem:
    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        full = os.statvfs_result((4096, 4096, 1000, 10, 10, 1000, 100, 100, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _: full)
        finding = machine.file_system(str(tmp_path))
        assert (finding.status, finding.exit_code) == ("fail", UNWRITABLE)
        assert finding.what.endswith(": full")

    def test_a_network_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "_file_system_type", lambda _: "nfs4")
        finding = machine.file_system(str(tmp_path))
        assert finding.status == "warn"
        assert "one machine" in (finding.advice or "")


class TestFlock:
    def test_a_real_one_excludes(self, tmp_path: Path) -> None:
        assert machine.file_locks(str(tmp_path), fcntl.flock).status == "ok"
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

        assert machine.file_locks(str(tmp_path), stuck).status == "fail"

    def test_one_that_isnt_there_is_noticed(self, tmp_path: Path) -> None:
        def missing(fd: int, operation: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        finding = machine.file_locks(str(tmp_path), missing)
        assert (finding.status, finding.exit_code) == ("fail", UNWRITABLE)
        assert "No locks available" in finding.what


class TestTheKernel:
    @pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
    def test_a_pidfd_that_is_blocked(self, tmp_path: Path, code: int) -> None:
        def blocked(pid: int) -> int:
            raise OSError(code, os.strerror(code))

        findings = examine(tmp_path / "state", pidfd_open=blocked)
        finding = find(findings, "pidfd")
        assert (finding.status, exit_code(findings)) == ("fail", 1)
        assert "seccomp" in (finding.advice or "")
