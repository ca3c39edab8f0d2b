"""What status looks like, with the names of a real CI, at the widths that people have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from leasectl.cli.rendering.status_columns import Look, overview_text, pools_table
from leasectl.model import Labels, Lease
from leasectl.pools.overview import (
    Overview,
    ShownLease,
    ShownMark,
    ShownMembership,
    ShownPool,
    ShownResource,
    ShownWaiter,
    parse_holder,
)
from leasectl.text.wording import cells

NOW = 1_763_791_200.0
TYPE = "openshift-org-azure--azure4--install-quota-slice"
UPGRADE = (
    "periodic-ci-openshift-release-master-nightly-4.19-e2e-azure-ovn-upgrade/1894762183746583552"
    "/e2e-azure-ovn-upgrade-ipi-install-install-stableinitial"
)
VPC = (
    "pull-ci-openshift-installer-main-e2e-azure-ovn-shared-vpc/1894762183746583999"
    "/e2e-azure-ovn-shared-vpc-ipi-install-install"
)
DUALSTACK = (
    "pull-ci-openshift-cluster-network-operator-release-4.18-e2e-azure-ovn-dualstack"
    "/1894761002348400640/e2e-azure-ovn-dualstack-ipi-install-install-aks"
)


def held(
    number: int,
    holder: str,
    handle: str,
    seconds: float,
    *,
    pool_type: str = TYPE,
    ttl: float | None = None,
    labels: Labels = (),
    **known: Any,
) -> ShownResource:
    identity = f"{holder}/{pool_type}-{handle}"
    lease = Lease(
        f"{pool_type}--{number:02d}", 4, 3, 2, identity, NOW - seconds, NOW - 5, ttl, 1, labels
    )
    return ShownResource(lease.name, ShownLease(lease, parse_holder(identity), **known))


def waiter(
    place: int,
    holder: str,
    handle: str,
    seconds: float,
    *,
    count: int = 1,
    name: str | None = None,
    pid: int | None = None,
    labels: Labels = (),
) -> ShownWaiter:
    who = parse_holder(f"{holder}/{TYPE}-{handle}")
    return ShownWaiter(place, 10 + place, who, count, name, NOW - seconds, pid, labels)


MIXED = ShownPool(
    TYPE,
    (
        held(
            0,
            UPGRADE,
            "aB3xYz",
            723,
            guard="here",
            guard_pid=4711,
            pid=4700,
            release_time=NOW + 477,
            labels=(("team", "install"),),
        ),
        held(1, VPC, "Qw8rTy", 4320, ttl=60.0, expires_in_seconds=48.0),
        held(
            2,
            DUALSTACK,
            "zU7mNb",
            47,
            guard="none",
            renewed_by="keeper",
            ttl=60.0,
            expires_in_seconds=48.0,
        ),
        ShownResource(f"{TYPE}--03"),
    ),
    (
        waiter(1, DUALSTACK, "k3mN0p", 192, count=2, pid=8123, labels=(("team", "network"),)),
        waiter(2, UPGRADE, "Zz0aA1", 47, name=f"{TYPE}--01", pid=91234),
    ),
)
ONE_JOB = ShownPool(
    TYPE,
    tuple(
        held(number, UPGRADE, handle, 60 * number + 7, guard="here", guard_pid=4700 + number)
        for number, handle in enumerate(["aB3xYz", "Qw8rTy"])
    ),
    (waiter(1, UPGRADE, "k3mN0p", 192, pid=8123),),
)


def shown(*pools: ShownPool, width: int | None, **look: bool) -> str:
    look.setdefault("wide", width is None)
    return overview_text(Overview("etcd://e", NOW, pools), Look(width, **look))


def golden(name: str) -> str:
    return (Path(__file__).parent / "goldens" / f"{name}.txt").read_text()


def test_at_80_columns() -> None:
    assert shown(MIXED, width=80) == golden("status-80")


def test_at_120_columns_with_what_is_free() -> None:
    assert shown(MIXED, width=120, free=True) == golden("status-120-free")


def test_a_pipe_has_all_columns_and_all_of_each() -> None:
    assert shown(MIXED, width=None) == golden("status-pipe")


def test_what_is_the_same_for_all_is_told_once_where_room_is_short() -> None:
    assert shown(ONE_JOB, ShownPool("lab", (ShownResource("lab--00"),), ()), width=80) == golden(
        "status-80-one-job"
    )


HOSTILE = "\x1b[2J\u202e" + "\u8cc7" * 300
LONG = ShownPool(
    "t" * 200,
    (
        held(0, f"{'j' * 200}/{'b' * 200}/{'h' * 250}", "x", 5, pool_type="t" * 200),
        held(1, HOSTILE, HOSTILE, -7, labels=((HOSTILE, HOSTILE),), pool_type="other" * 40),
        ShownResource("t" * 200 + "--02"),
    ),
    (waiter(1, HOSTILE, HOSTILE, 1e9, count=10**9, name="n" * 253, pid=2**31),),
)
FIFTY = ShownPool(
    TYPE,
    tuple(held(n, f"job-{n}-{'x' * n}/{10**18 + n}/pod-{n}", "aB3xYz", n) for n in range(50)),
    tuple(waiter(n, f"job-{n}/{n}/pod-{'y' * n}", "aB3xYz", n * n) for n in range(1, 51)),
)


@pytest.mark.parametrize("pool", [MIXED, ONE_JOB, LONG, FIFTY], ids=["mixed", "one", "long", "50"])
def test_no_line_is_longer_than_the_terminal(pool: ShownPool) -> None:
    for width in (1, 20, 40, 79, 80, 120, 400):
        for look in ({}, {"free": True}, {"colour": True}):
            text = shown(pool, ShownPool("T", (), ()), width=width, **look)
            without_colours = re.sub(r"\x1b\[\d*m", "", text)
            assert max(map(cells, without_colours.splitlines())) <= width
            assert all(line.isprintable() for line in without_colours.split("\n"))


@pytest.mark.parametrize("width", [34, 40, 60])
def test_what_shows_the_rest_is_whole_on_any_terminal(width: int) -> None:
    text = shown(FIFTY, width=width)
    assert text.startswith("hidden columns: ")
    assert "show all: leasectl status --wide" in text


def test_nothing_is_cut_at_a_pipe_or_when_wide() -> None:
    for text in (shown(LONG, width=None), shown(LONG, width=80, wide=True)):
        assert "j" * 200 in text and "b" * 200 in text and "h" * 250 in text
        assert "n" * 253 in text
        assert "hidden columns" not in text
        assert "…" not in text


def test_a_name_of_another_form_is_whole_below_its_pool() -> None:
    names = [TYPE, f"{TYPE}--", f"x{TYPE}--00", "other"]
    pool = ShownPool(TYPE, tuple(map(ShownResource, names)), ())
    lines = shown(pool, width=120, free=True).splitlines()
    assert sorted(line.split()[0] for line in lines[3:]) == sorted(["RESOURCE", *names])


def test_a_suspended_waiter_is_named_so() -> None:
    pool = MIXED._replace(queue=(MIXED.queue[0]._replace(suspended=True), MIXED.queue[1]))
    for width in (80, 120, None):
        assert " 1 suspended  " in shown(pool, width=width)
    assert "\x1b[33m1 suspended\x1b[0m" in shown(pool, width=120, colour=True)


def test_a_release_that_fails_is_overdue() -> None:
    late = held(0, UPGRADE, "aB3xYz", 60, guard="here", release_time=NOW - 7)
    pool = ShownPool(TYPE, (late,), ())
    assert " due 7s ago " in shown(pool, width=80)
    assert " due 7s ago (release) " in shown(pool, width=None)


def test_what_ends_a_lease_first_is_told_first() -> None:
    for renewed_by, short, full in (
        (None, "ttl 20s", "in 8s unless renewed, in 1h (release)"),
        ("keeper", "in 1h", "in 1h (release), renewed by keeper (ttl 20s)"),
    ):
        lease = held(
            0,
            UPGRADE,
            "aB3xYz",
            60,
            renewed_by=renewed_by,
            release_time=NOW + 3600,
            ttl=20.0,
            expires_in_seconds=8.0,
        )
        pool = ShownPool(TYPE, (lease,), ())
        assert f" {short} " in shown(pool, width=80)
        assert f" {full} " in shown(pool, width=None)


def test_colours_say_what_needs_a_look() -> None:
    text = shown(MIXED, width=120, colour=True, free=True)
    assert "\x1b[33munguarded\x1b[0m" in text
    assert "\x1b[32mfree\x1b[0m" in text
    assert "\x1b[1mRESOURCE\x1b[0m" in text
    assert "\x1b" not in shown(MIXED, width=120, free=True)


EU = (("region", "eu-central-1"), ("size", "big"))
MOVING = ShownPool(
    TYPE,
    (
        held(0, UPGRADE, "aB3xYz", 723, guard="here", guard_pid=4711)._replace(
            membership=ShownMembership(moves_to="azure--gpu"),
            mark=ShownMark("marked", "me@host"),
        ),
        held(1, VPC, "Qw8rTy", 4320, ttl=60.0, expires_in_seconds=48.0)._replace(
            membership=ShownMembership(leaves=True), mark=ShownMark("keep", "me@host")
        ),
        held(2, VPC, "zU7mNb", 47)._replace(
            membership=ShownMembership(cordoned=True), mark=ShownMark("ready", "me@host")
        ),
        ShownResource(f"{TYPE}--03", None, ShownMembership(cordoned=True), EU),
        ShownResource(
            f"{TYPE}--04", None, ShownMembership(by_default=True, held_back_seconds=75.0)
        ),
        ShownResource(
            "rack-7",
            None,
            ShownMembership(ttl_seconds=60.0, leaves_in_seconds=12.0),
            (("region", "us"),),
        ),
        ShownResource("rack-8", None, ShownMembership(pid=123)),
    ),
    (
        waiter(1, DUALSTACK, "k3mN0p", 192, count=2, pid=8123)._replace(
            where=(("region", "eu-central-1", True), ("size", "small", False))
        ),
        waiter(2, UPGRADE, "Zz0aA1", 47, name=f"{TYPE}--01", pid=91234),
    ),
    default_grace_seconds=120.0,
)


class TestMemberships:
    def test_are_told_in_full_where_there_is_room(self) -> None:
        rows = {
            line.split()[0].removeprefix(TYPE): " ".join(line.split()[1:])
            for line in shown(MOVING, width=None, free=True).splitlines()
            if line.startswith("  ")
        }
        assert "asked back by me@host, moves to azure--gpu" in rows["--00"]
        assert "asked back by me@host: kept, leaves" in rows["--01"]
        assert "asked back by me@host: ready, cordoned" in rows["--02"]
        assert rows["--03"] == "cordoned region=eu-central-1 size=big"
        assert rows["--04"] == "held back in 1m15s by default"
        assert rows["rack-7"] == "free joined, ttl 1m: 12s left region=us"
        assert rows["rack-8"] == "free joined with pid 123"
        assert " 3m12s 2 region=eu-central-1 size!=small " in rows["1"]

    def test_are_summed_up(self) -> None:
        plain = MOVING._replace(
            type="U", resources=MOVING.resources[:1], default_grace_seconds=None
        )
        heading, *rows = pools_table([MOVING, plain], Look(None)).splitlines()
        assert heading.split()[1:] == [
            *("CAPACITY", "FREE", "HELD", "WAITING", "UNAVAILABLE", "DEFAULT", "PROPERTIES")
        ]
        assert [row.split()[1:] for row in rows] == [
            [*"72322", "grace", "2m", "region=eu-central-1|us", "size=big"],
            [*"10120", "-"],
        ]

    def test_values_of_many_are_not_all_listed(self) -> None:
        resources = tuple(
            ShownResource(f"T--{n}", properties=(("n", str(n)),)) for n in range(1, 10)
        )
        text = pools_table([ShownPool("T", resources, ())], Look(None))
        assert text.splitlines()[1].endswith("  n=1|2|3|4|…")


def test_a_lease_of_several_resources_takes_one_line_where_it_fits() -> None:
    many = [held(n, VPC, "aB3xYz", 60, guard="none") for n in range(6)]
    other = held(7, VPC, "Qw8rTy", 60, guard="none")
    marked = held(8, VPC, "Qw8rTy", 60, guard="none")._replace(in_use=True)
    pool = ShownPool(TYPE, (*many, other, marked), ())
    lines = [line.split()[0] for line in shown(pool, width=100).splitlines() if "  --" in line]
    assert lines == ["--00,--01,--02,--03", "--04,--05", "--07", "--08"]
    assert "in use" in shown(pool, width=100)
    wide = shown(pool, width=None)
    assert all(f"  {TYPE}--{n:02d} " in wide for n in (*range(6), 7, 8))
