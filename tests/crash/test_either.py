"""Requests for whichever of two pools is free first: killed anywhere, and many at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from leasectl.model import Request
from tests.crash.contenders import Choose, Participant, contention, kill_contenders
from tests.crash.sweeping import Sweep
from tests.crash.test_etcd_sweep import EtcdSweep
from tests.kit.forking import ending, fork
from tests.kit.history import Event, read_history, violations
from tests.kit.hosts import Hosts
from tests.kit.invariants import broken_invariants
from tests.kit.support import Cli
from tests.kit.waits import eventually


def either(rng: random.Random) -> Request:
    one, other = rng.sample(["T", "U"], 2)
    return Request(one, other_types=(other,))


def only_t(_rng: random.Random) -> Request:
    return Request("T")


def only_u(_rng: random.Random) -> Request:
    return Request("U")


def some_u(rng: random.Random) -> Request:
    return Request("U", count=rng.randint(1, 2))


def of_pool(history: Sequence[Event], pool_type: str) -> list[Event]:
    return [event for event in history if event.name.startswith(f"{pool_type}--")]


def check_history(path: Path, capacities: dict[str, int]) -> Sequence[Event]:
    """See that it can be true, in each pool, and that no request ever got two leases for one."""
    history = read_history(path)
    for pool_type, capacity in capacities.items():
        assert violations(of_pool(history, pool_type), capacity=capacity) == []
    check_all_or_nothing(history)
    return history


def check_all_or_nothing(history: Sequence[Event]) -> None:
    """See that each request got as many leases as it asked for."""
    granted = Counter(event.handle for event in history if event.kind == "granted")
    asked = {event.handle: event.wanted for event in history if event.kind == "granted"}
    assert granted == asked


def test_many_who_take_either_and_others_keep_the_order_in_each(cli: Cli, tmp_path: Path) -> None:
    cli.pool("T", "T--0")
    cli.pool("U", "U--0", "U--1")
    choices: list[Choose] = [either, only_t, either, some_u] * 4

    def take(number: int, choose: Choose) -> None:
        rng = random.Random(number)
        participant = Participant(cli.state_dir, tmp_path / "history")
        for _ in range(8):
            participant.hold(choose(rng), seconds=rng.random() / 1000)
        participant.close()

    pids = [fork(lambda n=n, c=c: take(n, c)) for n, c in enumerate(choices)]  # type: ignore[misc]
    assert [ending(pid) for pid in pids] == [0] * len(choices)
    history = check_history(tmp_path / "history", {"T": 1, "U": 2})
    taken = Counter(event.name[0] for event in history if event.kind == "granted")
    assert min(taken.values()) > 4 * 8, "either of them was taken by those who take either"
    assert broken_invariants(cli.state_dir) == []
    assert (cli.held(), cli.waiting()) == ({}, [])


def test_killed_waiters_for_either_stop_nobody(cli: Cli, tmp_path: Path) -> None:
    history = tmp_path / "history"
    cli.pool("T", "T--0")
    cli.pool("U", "U--0")
    kill_contenders(cli, history, [either, either, only_t, only_u], seed=2)
    check_history(history, {"T": 1, "U": 1})


def test_an_acquire_of_either_can_be_killed_anywhere(cli: Cli, tmp_path: Path) -> None:
    sweep = Sweep(cli, tmp_path, capacity=1)
    sweep.keep_a_keeper()
    cli.pool("U", "U--0")
    with contention(cli.state_dir, sweep.history, [only_t, only_u, either]):
        sweep.kill_everywhere(lambda: ["acquire", "-q", "-t", "T", "-t", "U"], stride=18)
    sweep.check("at the end")
    assert (set(cli.held().values()), cli.waiting()) == (sweep.kept, [])
    check_history(sweep.history, {"T": 1, "U": 1})


def test_an_acquire_of_either_in_etcd_can_be_killed_around_each_request(
    hosts: Hosts, tmp_path: Path
) -> None:
    sweep = EtcdSweep(hosts, tmp_path)
    sweep.sweep.keep_a_keeper()
    hosts.pool("U--0", pool_type="U")
    hosts.access.acquire("another", Request("U"))
    types = ["-t", "U", "-t", "T", "--ttl", "2s"]
    sweep.kill_around_each_request(lambda: ["acquire", "--backend", hosts.url, "-q", *types])
    eventually(lambda: hosts.waiting("U") == 0, what="no ticket of the dead")
    assert hosts.held("U") == ["U--0"]
    sweep.settle()
