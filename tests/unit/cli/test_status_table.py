"""What status looks like, with the names of a real CI, at the widths that people have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from leasectl.cli.status_table import Look, overview_text, pools_table
from leasectl.model import Labels, Lease
from leasectl.pools.shown import (
    Overview,
    ShownLease,
    ShownPool,
    ShownResource,
    ShownWaiter,
    parse_holder,
)
from leasectl.text.width import cells

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


def test_what_is_the_same_for_all_stays_where_there_is_room() -> None:
    assert "of all" not in shown(ONE_JOB, width=300)
    assert "of all" not in shown(ONE_JOB, width=None)


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
    for width in (1, 10, 20, 40, 60, 79, 80, 81, 100, 120, 200, 400):
        for look in ({}, {"free": True}, {"colour": True}):
            text = shown(pool, ShownPool("T", (), ()), width=width, **look)
            without_colours = re.sub(r"\x1b\[\d*m", "", text)
            assert max(map(cells, without_colours.splitlines())) <= width
            assert all(line.isprintable() for line in without_colours.split("\n"))


@pytest.mark.parametrize("width", [80, 120])
def test_what_tells_holders_apart_is_whole(width: int) -> None:
    text = shown(FIFTY, width=width)
    for resource in FIFTY.resources:
        assert resource.lease is not None and resource.lease.holder.build is not None
        assert resource.lease.holder.build in text
    assert text.count("aB3xYz") == 100


def test_nothing_is_cut_at_a_pipe_or_when_wide() -> None:
    for text in (shown(LONG, width=None), shown(LONG, width=80, wide=True)):
        assert "j" * 200 in text and "b" * 200 in text and "h" * 250 in text
        assert "n" * 253 in text
        assert "no room" not in text
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


def test_colours_say_what_needs_a_look() -> None:
    text = shown(MIXED, width=120, colour=True, free=True)
    assert "\x1b[33munguarded\x1b[0m" in text
    assert "\x1b[32mfree\x1b[0m" in text
    assert "\x1b[1mRESOURCE\x1b[0m" in text
    assert "\x1b" not in shown(MIXED, width=120, free=True)


def test_how_much_is_free_stands_before_all_else() -> None:
    assert pools_table((MIXED,), Look(80)).splitlines() == [
        "POOL                                              CAPACITY  FREE  HELD  WAITING",
        f"{TYPE}         4     1     3        2",
    ]
