"""Programs that use the library pass a strict type checker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="needs the extra lint")
pytestmark = pytest.mark.once

PROGRAM = """
import threading
from datetime import timedelta
from typing import Optional, Tuple

import leasectl


def told(progress: leasectl.Progress) -> None:
    print(progress.position, progress.held)


def work(lease: leasectl.Lease) -> Tuple[str, ...]:
    deadline: Optional[float] = lease.deadline
    token: int = lease.fence
    print(deadline, token, lease.properties[lease.name].get("region"))
    lease.lost.call(lambda: print(lease.lost.reason))
    if lease.lost.wait(timeout=timedelta(seconds=1)):
        raise lease.loss()
    return lease.names


with leasectl.lease("azure", wait="2h", release_after="18m-22m", guard=None) as lease:
    work(lease)
cancel = threading.Event()
with leasectl.Client("etcd://host", labels={"url": "x"}) as client:
    lease = client.acquire(
        ["a", "b"], count="all", where={"region": "eastus"}, ttl=60, cancel=cancel, progress=told
    )
    lease.renew()
    lease.reacquire(wait=0)
    names: Tuple[str, ...] = lease.release(delay="20m")
    names = client.release(names=names, force=True, reason="gone", now=True)
    free: int = client.status("a")["pools"][0]["free"]
    with client.once("key", inputs=["a", b"b"]) as job:
        if not job.is_done:
            job.result = b"done"
try:
    pass
except (leasectl.NoLease, leasectl.LeaseLost) as error:
    code: int = error.exit_code
"""
WRONG = """
import leasectl

leasectl.nothing
leasectl.lease("azure", sizes=3)
leasectl.lease("azure", on_reclaim="never")
leasectl.Client().acquire(3)
"""


def check(folder: Path, program: str) -> tuple[int, str]:
    """Check a program as a user would: strictly, with leasectl installed."""
    path = folder / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={folder}", str(path)]
    checked = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return checked.returncode, checked.stdout


def test_a_program_is_checked_by_the_librarys_types(tmp_path: Path) -> None:
    assert check(tmp_path, PROGRAM) == (0, "Success: no issues found in 1 source file\n")
    code, told = check(tmp_path, WRONG)
    assert (code, told.count("error:")) == (1, 4), told
