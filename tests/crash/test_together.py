"""Requests for one resource of each of two pools: killed anywhere, and many at once."""

from __future__ import annotations

import random
from pathlib import Path

from leasectl.model import Request
from tests.crash.contenders import contention, kill_contenders
from tests.crash.sweeping import Sweep
from tests.crash.test_either import check_all_or_nothing, either, only_t, only_u
from tests.crash.test_etcd_sweep import CAPACITY, EtcdSweep
from tests.crash.test_kubernetes_sweep import STRIDE, held_in
from tests.kit.history import read_history, uses
from tests.kit.hosts import Hosts
from tests.kit.invariants import broken_invariants
from tests.kit.killing import each_answer_lost
from tests.kit.kubernetes.hosts import KubernetesHosts
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay
from tests.kit.support import Cli
from tests.kit.waits import eventually


def both(rng: random.Random) -> Request:
    one, other = rng.sample(["T", "U"], 2)
    return Request(one, other_types=(other,), needs_all=True)


def check_history(path: Path) -> None:
    """See that each resource had one holder at a time, and each request all or nothing."""
    history = read_history(path)
    last: dict[str, int] = {}
    for hold in sorted(uses(history), key=lambda each: each.start):
        name = hold.event.name
        assert hold.start >= last.get(name, 0), f"{hold.event.handle} was granted what is held"
        last[name] = hold.end or 0  # whoever was killed has written nothing
    check_all_or_nothing(history)
    assert any(event.wanted == 2 for event in history)


def test_killed_waiters_for_both_stop_nobody(cli: Cli, tmp_path: Path) -> None:
    history = tmp_path / "history"
    cli.pool("T", "T--0")
    cli.pool("U", "U--0")
    kill_contenders(cli, history, [both, both, either, only_t, only_u], seed=3)
    check_history(history)


def test_an_acquire_of_both_can_be_killed_anywhere(cli: Cli, tmp_path: Path) -> None:
    sweep = Sweep(cli, tmp_path, capacity=1)
    sweep.keep_a_keeper()
    cli.pool("U", "U--0")
    with contention(cli.state_dir, sweep.history, [only_t, only_u, both]):
        sweep.kill_everywhere(lambda: ["acquire", "-q", "-t", "T", "-t", "U", "--each"], stride=18)
    sweep.check("at the end")
    assert (set(cli.held().values()), cli.waiting()) == (sweep.kept, [])
    check_history(sweep.history)


def test_an_acquire_of_both_in_etcd_can_be_killed_around_each_request(
    hosts: Hosts, tmp_path: Path
) -> None:
    sweep = EtcdSweep(hosts, tmp_path)
    sweep.sweep.keep_a_keeper()
    hosts.pool(*(f"U--{number}" for number in range(CAPACITY)), pool_type="U")
    types = ["-t", "U", "-t", "T", "--each", "--ttl", "2s"]
    sweep.kill_around_each_request(lambda: ["acquire", "--backend", hosts.url, "-q", *types])
    eventually(lambda: hosts.waiting("U") == 0, what="no ticket of the dead")
    eventually(lambda: hosts.held("U") == [], what="no claim of the dead")
    sweep.settle()


def test_whichever_answer_is_lost_both_are_leased_or_none_in_kubernetes(
    kubernetes_hosts: KubernetesHosts, namespace: Namespace, between_api: Relay
) -> None:
    for losing in each_answer_lost(between_api, more_than=8, stride=STRIDE):
        types = [f"{each}{losing.number}" for each in "TU"]
        for each in types:
            kubernetes_hosts.pool(f"{each}--0", pool_type=each)
        # Not forked from here: the relay's threads may hold locks of OpenSSL just then.
        cli = kubernetes_hosts.new(through=between_api)
        losing.begin()
        wanted = ["-t", types[0], "-t", types[1], "--each", "--ttl", "60s"]
        handle = cli.ok("acquire", "-q", *wanted).strip()
        names = [f"{each}--0" for each in types]
        assert [held_in(kubernetes_hosts.access, each) for each in types] == [[n] for n in names]
        assert cli.ok("release", "--handle", handle).split() == names, losing.number
        assert [held_in(kubernetes_hosts.access, each) for each in types] == [[], []]
        assert broken_invariants(cli.state_dir) == [], losing.number
        cli.close()
    assert [name for name in namespace.lease_names() if "-ticket-" in name] == []
