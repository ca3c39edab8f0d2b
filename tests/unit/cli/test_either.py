"""``-t A -t B``: whichever is free first, or with ``--each`` one of each, as scripts ask for it."""

from __future__ import annotations

import json
import os
import shlex

import pytest

from leasectl.backends.contract import Patience
from leasectl.leases.acquire import reacquire
from leasectl.model import Request
from tests.kit.pool_changes import add_resources, remove_resources
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

# Each test is several processes; what differs between Pythons isn't here.
pytestmark = pytest.mark.once
EITHER = ("-t", "aws", "-t", "azure")
EACH = (*EITHER, "--each")


@pytest.fixture
def cli(cli: Cli) -> Cli:
    cli.pool("aws", "aws--00")
    cli.pool("azure", "azure--00")
    return cli


def waiting(cli: Cli, *args: str) -> Started:
    """Start a command that has to wait, and see it in both queues."""
    for pool_type in ("aws", "azure"):
        if f"{pool_type}--00" not in cli.held():
            cli.hold(pool_type)
    started = cli.start(*args)
    eventually(lambda: len(cli.waiting()) == 2)
    return started


def asked_for(cli: Cli, handle: str) -> dict[str, object]:
    return dict(json.loads(cli.ok("cat", "--handle", handle, "--format", "json")))


def test_the_environment_and_cat_say_which_type_it_was(cli: Cli) -> None:
    cli.hold("aws")
    lines = cli.ok("acquire", *EITHER, "--output", "env").splitlines()
    said = dict(shlex.split(line)[-1].split("=", 1) for line in lines)
    handle = said["LEASECTL_HANDLE"]
    assert os.path.basename(handle).startswith("aws-")  # the first that was asked for
    assert (said["LEASECTL_TYPE"], said["LEASECTL_NAMES"]) == ("azure", "azure--00")
    record = asked_for(cli, handle)
    assert (record["type"], record["types"]) == ("azure", ["aws", "azure"])
    cli.ok("release", "--handle", handle)
    assert asked_for(cli, handle)["type"] == "azure"


def test_the_types_may_stand_without_t(cli: Cli) -> None:
    assert cli.ok("acquire", "azure", "aws", "--output", "names") == "azure--00\n"
    show = ("--", "sh", "-c", 'echo "$LEASECTL_TYPE"')
    assert cli.ok("run", "azure", "aws", *show) == "aws\n"


def test_the_command_of_run_is_told_of_each_attempt_which_it_was(cli: Cli) -> None:
    script = (
        'echo "$LEASECTL_ATTEMPT $LEASECTL_TYPE $LEASECTL_NAMES"; '
        '[ "$LEASECTL_ATTEMPT" = 2 ] || exit 4'
    )
    retry = ("--attempts", "2", "--retry-on", "4", "--before-retry", "leasectl acquire -t aws")
    cli.env["PATH"] = f"{os.path.dirname(cli.command()[0])}:{cli.env['PATH']}"
    out = cli.ok("run", *EITHER, *retry, "--", "sh", "-c", script)
    first, _handle, second = out.splitlines()
    assert (first, second) == ("1 aws aws--00", "2 azure azure--00")


def test_with_each_the_handle_has_one_of_each(cli: Cli) -> None:
    show = 'echo "$LEASECTL_TYPE $LEASECTL_NAMES $LEASECTL_FENCE"; leasectl status --json'
    cli.env["PATH"] = f"{os.path.dirname(cli.command()[0])}:{cli.env['PATH']}"
    said, status = cli.ok("run", *EACH, "--", "sh", "-c", show).splitlines()
    types, names, fences = said.split()
    assert (types, names) == ("aws,azure", "aws--00,azure--00")
    assert len(set(fences.split(","))) == 2
    pools = json.loads(status)["pools"]
    assert [(each["type"], each["held"]) for each in pools] == [("aws", 1), ("azure", 1)]
    assert cli.held() == {}
    handle = cli.ok("acquire", *reversed(EACH[1:4:2]), "--each").strip()
    record = asked_for(cli, handle)
    assert (record["type"], record["types"], record["each"]) == (None, ["azure", "aws"], True)
    assert cli.ok("cat", "--handle", handle).split() == ["azure--00", "aws--00"]
    assert set(cli.ok("release", "--handle", handle).split()) == {"aws--00", "azure--00"}
    assert cli.ok("reacquire", "--handle", handle).strip() == handle
    assert list(cli.held()) == ["aws--00", "azure--00"]


def test_inside_a_lease_one_of_each_would_wait_for_ever(cli: Cli) -> None:
    cli.env["PATH"] = f"{os.path.dirname(cli.command()[0])}:{cli.env['PATH']}"
    refused = cli("run", "azure", "--", "leasectl", "acquire", *EACH)
    assert refused.code == 64
    assert "a leasectl command around this one holds azure--00, so" in refused.err


def test_reacquire_asks_for_both_again(cli: Cli) -> None:
    handle = cli.hold(Request("aws", other_types=("azure",)))
    assert handle.names == ("aws--00",)
    with cli.service() as service:
        add_resources(service.members, "azure", ["azure--01"])
        remove_resources(service.members, "aws", ["aws--00"], force=True)
        again = reacquire(service, handle.id, patience=Patience(wait_seconds=0))
    assert (again.names, again.type) == (("azure--00",), "azure")
    assert again.request.types == ("aws", "azure")


def test_a_release_and_a_deadline_leave_no_ticket_in_either(cli: Cli) -> None:
    waiter = waiting(cli, "acquire", *EITHER)
    (handle_id, _) = cli.waiting()
    cli.ok("release", "--handle", handle_id)
    assert cli.waiting() == []
    assert waiter.finish().code == 75
    late = cli("acquire", *EITHER, "-w", "0")
    assert (late.code, cli.waiting()) == (75, [])
    assert 'no lease of "aws" or "azure": 2 of 2 held' in late.err


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("-t", "azur"), 66, 'no pool "azur"; did you mean "azure"?'),
        (("-t", "aws"), 64, "name each pool once"),
        (("azure",), 64, "is given twice, with -t and without"),
        (("-t", "azure", "-c", "2"), 64, "leave out --count"),
        (("-t", "azure", "--name", "aws--00"), 64, "--name aws--00 is in one pool"),
        (("-t", "azure", "--each", "--name", "aws--00"), 64, "--name aws--00 is in one pool"),
        (("--each",), 64, "--each needs several pools"),
        (("-t", "azure", "--each", "-c", "2"), 64, "a request for 2 can never be met"),
        (("-t", "azure", "--each", "--backend", "http://127.0.0.1:9"), 64, "choose local:"),
        (("-t", "azure", "--backend", "http://127.0.0.1:9"), 64, "choose local:, etcd://"),
        (tuple(f"-tt{n}" for n in range(16)), 64, "17 pools: give -t at most 16 times"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_nothing_changed(
    cli: Cli, args: tuple[str, ...], code: int, said: str
) -> None:
    before = cli.snapshot()
    finished = cli("acquire", "-t", "aws", *args)
    assert (finished.code, finished.out) == (code, "")
    assert said in finished.err
    assert cli.snapshot() == before


def test_a_dry_run_takes_either_as_it_takes_all(cli: Cli) -> None:
    finished = cli("acquire", *EITHER, "--backend", "none:", "--output", "env")
    assert finished.code == 0
    assert "LEASECTL_TYPE=aws\n" in finished.out
