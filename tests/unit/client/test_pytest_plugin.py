"""Suites that take leases by the plugin, also on workers that are killed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.kit.support import Cli, Finished

pytestmark = pytest.mark.once
# anyio's plugin, which none of them uses, is half of a start.
NO_SUMMARY = ("-q", "-p", "no:cacheprovider", "-p", "no:anyio", "--strict-markers")


class Suite:
    """A file of tests, run by pytest in a process of its own."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self._file = cli.cwd / "test_suite.py"

    def run(self, text: str, *options: str) -> Finished:
        """Run tests; return what pytest printed."""
        self._file.write_text(f"import os, signal, time\nimport pytest\n{text}")
        (self.cli.cwd / "pytest.ini").write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", *NO_SUMMARY, *options, str(self._file)]
        return self.cli.spawn(command, PYTEST_ADDOPTS=None).finish()


@pytest.fixture
def suite(cli: Cli) -> Suite:
    cli.ok("pool", "create", "azure", "--count", "3")
    return Suite(cli)


def held_meanwhile(log: Path) -> dict[str, list[str]]:
    """The events of each resource, in order: begin and end, with the test."""
    found: dict[str, list[str]] = {}
    for line in log.read_text().splitlines():
        event, name, test = line.split()
        found.setdefault(name, []).append(f"{event} {test}")
    return found


SHARED = """
def note(event, lease, test):
    with open("log", "a") as log:
        log.write(f"{event} {lease.name} {test}\\n")

@pytest.mark.parametrize("test", range(20))
@pytest.mark.lease("azure")
def test_install(lease, test, request):
    note("begin", lease, test)
    if test in (5, 14) and not os.path.exists(f"killed-{test}"):
        open(f"killed-{test}", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    assert not lease.is_lost
    time.sleep(0.02)
    note("end", lease, test)
"""


def test_four_workers_share_three_accounts_though_some_are_killed(cli: Cli, suite: Suite) -> None:
    finished = suite.run(SHARED, "-n", "4", "--lease-wait", "5m")
    assert "2 failed, 18 passed" in finished.out, finished
    assert finished.out.count("crashed while running") >= 2
    events = held_meanwhile(cli.cwd / "log")
    assert set(events) == {"azure--00", "azure--01", "azure--02"}
    for of_resource in events.values():
        holding = ""
        for each in of_resource:
            event, _, test = each.partition(" ")
            if event == "begin":
                assert holding in ("", "5", "14"), of_resource
                holding = test
            else:
                assert holding == test, of_resource
                holding = ""
    assert '"held": 0' in cli.ok("status", "azure", "--json")
    assert cli.query("SELECT id FROM handle WHERE state != 'released'") == []


def test_workers_are_holders_of_their_own_and_shown_with_their_tests(
    cli: Cli, suite: Suite
) -> None:
    text = """
@pytest.mark.parametrize("test", range(6))
@pytest.mark.lease("azure", scope="session")
def test_install(lease, test):
    with open("log", "a") as log:
        log.write(f"{os.getpid()} {lease.name} {lease.fence}\\n")

@pytest.mark.lease("azure", labels={"a": "b"})
def test_labels(lease):
    import leasectl
    (pool,) = leasectl.Client().status("azure")["pools"]
    labels = [each["labels"] for each in pool["resources"] if each["name"] == lease.name]
    worker = os.environ["PYTEST_XDIST_WORKER"]
    assert labels == [{"test": "test_suite.py::test_labels", "worker": worker, "a": "b"}]
"""
    finished = suite.run(text, "-n", "2")
    assert "7 passed" in finished.out, finished
    lines = {tuple(line.split()) for line in (cli.cwd / "log").read_text().splitlines()}
    assert (
        len(lines) == len({pid for pid, _, _ in lines}) == len({name for _, name, _ in lines}) == 2
    )
    assert cli.held() == {}


def test_the_report_names_the_leases(cli: Cli, suite: Suite) -> None:
    text = """
@pytest.mark.lease("azure", count=2)
def test_fails(): assert 0
@pytest.mark.lease("azure")
def test_passes(): pass
"""
    finished = suite.run(text, "--junitxml=report.xml")
    assert "azure--00 (fencing token 1)\nazure--01 (fencing token 2)\n" in finished.out, finished
    report = (cli.cwd / "report.xml").read_text()
    names = re.findall(r'property name="lease" value="([^"]*)"', report)
    assert [each.partition(" ")[0] for each in names] == ["azure--00", "azure--01", "azure--02"]


def test_a_missing_pool_fails_or_skips(cli: Cli, suite: Suite) -> None:
    text = """
@pytest.mark.lease("gcp", count=2)
def test_fails(): pass
@pytest.mark.lease("gcp", optional=True)
def test_is_skipped(): pass
@pytest.mark.lease("azure", count=2, scope="session")
def test_holds_two(): pass
@pytest.mark.lease("azure", count=2, optional=True)
def test_is_skipped_without_a_lease(): pass
"""
    finished = suite.run(text, "--lease-wait", "0", "-rs")
    assert "1 passed, 2 skipped, 1 error" in finished.out, finished
    assert "leasectl pool create gcp --count 2\n" in finished.out
    assert "During handling" not in finished.out


def test_a_lost_lease_fails_its_test_alone(cli: Cli, suite: Suite) -> None:
    text = """
import leasectl
@pytest.mark.parametrize("scope", ["function", "session"])
def test_nothing(scope): pass
@pytest.mark.lease("azure", scope="function")
def test_loses(lease): lose(lease)
@pytest.mark.lease("azure", scope="session")
def test_loses_that_of_the_session(lease): lose(lease)
@pytest.mark.lease("azure", scope="session")
def test_goes_on(lease): assert lease.is_held
def lose(lease):
    leasectl.Client().release(names=lease.names, force=True, reason="stuck")
    assert lease.lost.wait("1m")
"""
    finished = suite.run(text)
    assert "5 passed, 2 errors" in finished.out, finished
    # In CI, pytest repeats whole errors in its summary.
    assert len(re.findall("^E .*LeaseLost: the lease on azure--0", finished.out, re.M)) == 2


def test_a_failing_release_at_the_end_is_a_warning(suite: Suite) -> None:
    text = """
import leasectl
@pytest.mark.lease("azure", scope="session")
def test_one(lease): lease.release = fail
@pytest.mark.lease("azure", count=2, scope="session")
def test_two(lease): lease.release = fail
def fail(): raise leasectl.BackendUnreachable("server is away")
"""
    finished = suite.run(text)
    assert finished.code == 0, finished
    assert "2 passed, 2 warnings" in finished.out, finished
    assert "azure--00: server is away" in finished.out
    assert "azure--01, azure--02: server is away" in finished.out


def test_another_backend_may_be_named(cli: Cli, suite: Suite) -> None:
    text = '@pytest.mark.lease("any")\ndef test_runs(lease): assert lease.backend == "none:"\n'
    finished = suite.run(text, "--lease-backend", "none:")
    assert "1 passed" in finished.out, finished


def test_a_wrong_mark_is_told(suite: Suite) -> None:
    marks = {
        "pytest.mark.slow": "mark the test with @pytest.mark.lease(POOL)",
        "pytest.mark.lease()": "write it as @pytest.mark.lease(pool, *, scope='function'",
        "pytest.mark.lease('azure', scope='class')": "write it as @pytest.mark.lease(pool",
        "pytest.mark.lease('azure', size=2)": "unknown keyword size",
    }
    text = "".join(
        f"@{mark}\ndef test_{number}(lease): pass\n" for number, mark in enumerate(marks)
    )
    finished = suite.run(text, "-o", "markers=slow", "-p", "no:xdist")
    assert "4 errors" in finished.out, finished
    for number, told in enumerate(marks.values()):
        part = finished.out.partition(f"ERROR at setup of test_{number} ")[2]
        assert told in part.partition("ERROR at setup of")[0], finished


def test_a_suite_without_the_mark_loads_nothing(suite: Suite) -> None:
    text = "import sys\ndef test_runs(): assert 'leasectl.client' not in sys.modules\n"
    finished = suite.run(text)
    assert "1 passed" in finished.out, finished
