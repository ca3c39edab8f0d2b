"""Requests that wait for each other's leases: what status, doctor and the waiting line show."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest

from tests.kit.support import Cli, Started
from tests.kit.terminal import CTRL_C, terminal
from tests.kit.waits import eventually


def waiting(cli: Cli) -> int:
    return sum(len(pool["queue"]) for pool in json.loads(cli.ok("status", "--json"))["pools"])


def nested(cli: Cli, outer: str, inner: str) -> list[str]:
    """A command that holds a lease of one pool while it waits for one of another."""
    return cli.command("run", outer, "--", *cli.command("run", inner, "--", "true"))


@pytest.fixture
def circle(cli: Cli) -> Iterator[tuple[Started, Started]]:
    """Two commands, of which each waits for what the other holds."""
    for pool in ("A", "B"):
        cli.pool(pool, f"{pool}--00")
    holds_b = cli.spawn(
        [*cli.command("run", "B", "--"), "sh", "-c", f"{gate(cli)}; exec {a_too(cli)}"]
    )
    eventually(lambda: "B--00" in cli.held())
    holds_a = cli.spawn(nested(cli, "A", "B"))
    eventually(lambda: waiting(cli) == 1)
    (cli.cwd / "gate").touch()
    eventually(lambda: waiting(cli) == 2)
    yield holds_a, holds_b
    for each in (holds_a, holds_b):
        each.signal(signal.SIGTERM)
        each.finish()


def gate(cli: Cli) -> str:
    return f"until [ -e {cli.cwd}/gate ]; do sleep 0.05; done"


def a_too(cli: Cli) -> str:
    return " ".join([*cli.command("run", "A", "--"), "true"])


def test_status_and_doctor_show_a_circle(cli: Cli, circle: tuple[Started, Started]) -> None:
    told = cli.ok("status").splitlines()
    who = r"\S+/[AB]-\w{6}"
    for pool in ("A", "B"):
        pattern = rf"circular wait: request {who} waits for {pool}, held by {who}; its .* as {who}"
        assert sum(bool(re.fullmatch(pattern, line)) for line in told) == 1, told
    found = json.loads(cli.ok("status", "--json"))["circular_waits"]
    assert [(each["pool"], each["holds"]) for each in found] == [("A", ["B--00"]), ("B", ["A--00"])]
    assert [each["holds_as"] for each in found] == [each["holders"] for each in reversed(found)]
    checks = {each["name"]: each for each in json.loads(cli("doctor", "--json").out)["checks"]}
    assert checks["circular waits"]["status"] == "warn"


def test_jobs_that_hold_and_wait_are_a_circle_also_without_guards(cli: Cli) -> None:
    for pool in ("A", "B"):
        cli.pool(pool, f"{pool}--00")
    jobs = {own: {"JOB_NAME": f"job-{own}", "BUILD_ID": "7"} for own in ("A", "B")}
    for own, job in jobs.items():
        cli.ok("acquire", own, **job)
    waits = [cli.start("acquire", other, **jobs[own]) for own, other in (("A", "B"), ("B", "A"))]
    eventually(lambda: waiting(cli) == 2)
    found = json.loads(cli.ok("status", "--json"))["circular_waits"]
    assert [(each["waiter"].split("/")[0], each["pool"]) for each in found] == [
        ("job-B", "A"),
        ("job-A", "B"),
    ]
    for each in waits:
        each.signal(signal.SIGTERM)
        each.finish()


def test_waiting_line_names_the_holder_that_waits_in_turn(cli: Cli) -> None:
    for pool in ("A", "B"):
        cli.pool(pool, f"{pool}--00")
    cli.ok("acquire", "B", JOB_NAME="other", BUILD_ID="1")
    cli.ok("acquire", "A", JOB_NAME="own", BUILD_ID="2")
    other = cli.start("acquire", "A", JOB_NAME="other", BUILD_ID="1")
    env = {**cli.env, "JOB_NAME": "own", "BUILD_ID": "2"}
    with terminal(cli.command("acquire", "B"), env, cli.cwd) as there:
        there.until("circular wait: ends only if other/1/[^,]* releases a lease")
        there.type(CTRL_C)
        there.ending()
    other.signal(signal.SIGTERM)
    other.finish()
