"""``leasectl once`` on several machines."""

from __future__ import annotations

import json

import pytest

from tests.kit.hosts import Hosts
from tests.kit.hosts import hosts as hosts
from tests.kit.support import Cli
from tests.kit.waits import eventually

# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once
KEY = "quay.io/org/release:4.21@sha256:é/../x"
SPECS = tuple(f"registry.example.org/ocp/{'x' * 40}{each}{'y' * 40}:4.21" for each in "ab")


def test_any_key_and_its_inputs_are_shown_and_forgotten_by_id(hosts: Hosts) -> None:
    here, there = hosts.new(), hosts.new()
    for spec in SPECS:
        assert here.ok("once", KEY, "--input", spec, "--", "echo", spec) == f"{spec}\n"
    listed = json.loads(there.ok("once", "--list", "--json"))
    assert [each["key"] for each in listed] == [KEY, KEY]
    assert len({each["inputs"] for each in listed}) == 2

    def told() -> list[list[str]]:
        events = map(json.loads, there.ok("events", "--json", "--name", KEY).splitlines())
        return [each["names"] for each in events if each["kind"] == "work done"]

    eventually(lambda: sorted(told()) == sorted([KEY, each["inputs"]] for each in listed))
    for each in listed:
        there.ok("once", "--forget", each["id"])
    assert json.loads(here.ok("once", "--list", "--json")) == []


def is_queued(cli: Cli, number: int) -> bool:
    works = json.loads(cli.ok("status", "--json"))["works"]
    return [(each["work"], each["inputs"], each["waiting"]) for each in works] == [
        (KEY, "1", number)
    ]


def test_a_failed_runner_gets_the_result_of_the_next_who_sees_why_it_failed(
    hosts: Hosts,
) -> None:
    here, there = hosts.new(), hosts.new()
    until_told = f"until [ -e {here.cwd}/may ]; do sleep 0.05; done"
    asked = ("once", KEY, "--input", "1", "--")
    first = here.start(*asked, "sh", "-c", f"{until_told}; echo no room >&2; exit 7")
    eventually(lambda: is_queued(here, 0))
    second = there.start(*asked, "echo", "result")
    eventually(lambda: is_queued(here, 1))
    (here.cwd / "may").touch()
    ends = [each.finish() for each in (first, second)]
    assert [(each.code, each.out) for each in ends] == [(0, "result\n")] * 2
    assert "leasectl: | no room\n" in ends[1].err
    assert json.loads(here.ok("status", "--json"))["works"] == []
