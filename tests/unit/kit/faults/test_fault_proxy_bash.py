"""The functions with which bats tests use the lease proxy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.kit.support import eventually

HELPER = Path(__file__).parents[3] / "bats" / "fault_proxy.bash"


def run(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a bats test runs: with the functions, `set -e`, and descriptor 3 open."""
    env = {**os.environ, "BATS_TEST_TMPDIR": str(tmp_path), "HELPER": str(HELPER)}
    text = f'set -euo pipefail\nsource "$HELPER"\n{script}\nfault_proxy_stop\n'
    # Descriptor 3 is the pipe too, as with bats: we wait for whoever keeps it open.
    return subprocess.run(
        ["bash", "-c", f"exec 3>&1\n{text}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
    )


ASK = 'ask() { curl -s -X POST "$FAULT_PROXY_URL/lease/$1" "${@:2}" || printf "failed %s" "$?"; }\n'


def test_a_test_starts_one_breaks_it_and_looks_at_it(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        ASK
        + """
        fault_proxy_start --resources T=2 --fault 'reset-after path=acquire nth=1'
        ask 'acquire?type=T'; echo
        ask 'acquire?type=T'; echo
        fault_proxy_state leased
        fault_proxy_has leased 2; fault_proxy_has waiting 0; ! fault_proxy_has leased 1
        fault_proxy_faults '500 text="not now"'
        ask release -d '{"names":["T--01"]}'
        fault_proxy_faults
        ask release -d '{"names":["T--01"]}'
        fault_proxy_occupy T 2
        fault_proxy_vacate
        fault_proxy_log answer | wc -l
        fault_proxy_check --holds T--00
        fault_proxy_check --holds T--01 || echo "checked: $?"
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == [
        "failed 56",
        '{"names":["T--01"]}',
        "T--00",
        "T--01",
        "not now",
        "T--01",
        "T--01",
        "4",
        "the caller holds T--01, which isn't leased",
        "T--00 is in no handle; request 1 got it",
        "checked: 1",
        "",
    ]


def test_refusing_hanging_and_marks(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        ASK
        + """
        fault_proxy_start --resources T=1 --fault hang
        fault_proxy_refuse
        ask 'acquire?type=T'; echo
        fault_proxy_accept
        ask 'acquire?type=T' >answer &
        until fault_proxy_has hanging 1; do sleep 0.02; done
        fault_proxy_mark now
        fault_proxy_resume
        wait "$!"
        cat answer
        fault_proxy_check --quiet-after now
        """.replace("answer", str(tmp_path / "answer")),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 'failed 7\n{"names":["T--00"]}'


def test_a_shell_that_ends_takes_its_lease_proxy_along(tmp_path: Path) -> None:
    # No fault_proxy_stop; reading to the end of stdout shows that nobody keeps it open.
    done = run(tmp_path, 'fault_proxy_start --resources T=1; echo "$FAULT_PROXY_PID"; exit 3')
    assert done.returncode == 3
    stat = Path("/proc", done.stdout.strip(), "stat")
    eventually(lambda: not stat.exists() or ") Z " in stat.read_text())


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    done = run(tmp_path, "fault_proxy_start --resources T=1 --fault explode")
    assert done.returncode == 1
    assert "no fault 'explode'" in done.stderr


def test_a_paused_one_can_be_stopped_and_stopping_twice_does_no_harm(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        fault_proxy_stop
        fault_proxy_start --resources T=1
        kill -STOP "$FAULT_PROXY_PID"
        fault_proxy_stop
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
