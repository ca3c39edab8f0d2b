"""Processes that pass resources on to each other at a real API server, and a crowd that waits.

What is counted is judged at any size. What takes time is judged where the machine has nothing else
to do: LEASECTL_TEST_FULL_SIZE=1, which has minutes of it and five hundred who wait.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.engines.kubernetes.names import TICKET_PREFIX
from tests.kit.killing import FULL_SIZE
from tests.kit.kubernetes.contest import contest
from tests.kit.kubernetes.crowd import crowd
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.support import Cli
from tests.kit.waits import eventually

SECONDS = 60.0 if FULL_SIZE else 1.5
WAITERS = 500 if FULL_SIZE else 24  # more than those who are next
TTL = 60.0


@pytest.mark.parametrize(("resources", "times_floor"), [(1, 1.7), (4, 4.0)])
def test_resources_are_passed_on_in_order_with_four_requests_each(
    namespace: Namespace, tmp_path: Path, resources: int, times_floor: float
) -> None:
    enough = int(8 * SECONDS)
    found = contest(
        namespace, tmp_path, processes=8, resources=resources, seconds=SECONDS, more_than=enough
    )
    print(found)
    assert found.wrong == []
    assert found.grants > enough
    told = found.requests.pop("create events")
    assert told <= 3 * found.grants + 8 * 2  # that it waits, has its turn, and gives that back
    # A ticket, its claim, its end, and the release; a list and a watch for who comes first.
    assert sum(found.requests.values()) < 4.1 * found.grants + 8 * 4
    if FULL_SIZE:
        assert found.times_floor <= times_floor


def test_a_crowd_asks_for_nothing_but_renewals_and_is_served_in_order(
    namespace: Namespace, tmp_path: Path
) -> None:
    idle_seconds = 60.0 if FULL_SIZE else 1.0
    found = crowd(namespace, tmp_path, waiters=WAITERS, ttl_seconds=TTL, idle_seconds=idle_seconds)
    print(found)
    assert found.wrong == []
    assert found.idle_requests.keys() <= {"update"}
    # Each lists once more, when it is one of the next, and follows the pool from then on.
    # A claim and its release, and renewals of the ticket. A write that another has overtaken is
    # repeated, more often on a busy machine, but far from once for each waiter.
    assert found.requests["update"] < WAITERS / 3
    assert found.requests.get("list", 0) < 1.1
    assert found.requests.get("watch", 0) < 1.1
    if FULL_SIZE:
        assert found.idle_requests["update"] <= 3.1


def test_a_command_that_has_waited_leaves_no_ticket(
    cli: Cli, namespace: Namespace, kubeconfig: Path
) -> None:
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig))

    def tickets() -> list[str]:
        return [each for each in namespace.lease_names() if each.startswith(TICKET_PREFIX)]

    cli.ok("pool", "create", "T", "--count", "1")
    handle = cli.ok("acquire", "-t", "T").strip()
    waiting = cli.start("acquire", "-t", "T", "-w", "60s")
    eventually(tickets, what="it waits")
    cli.ok("release", "--handle", handle)
    assert waiting.finish().code == 0
    assert tickets() == []
