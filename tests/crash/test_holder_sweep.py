"""A holder's `use` and `answer` are killed, wherever that may be: who uses it and who gets it.

After each kill a use is tried. If it may be used, no operator ever gets it for this mark; if not,
the keeper finishes what was begun, and the operator gets it.
"""

from __future__ import annotations

from pathlib import Path

from leasectl.errors import NotAllowed
from leasectl.leases.marks import answer, asked_of, use
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Handle, Request, whole
from tests.crash.sweeping import Sweep, kill_at_request
from tests.kit.forking import ending, fork, leasectl
from tests.kit.hosts import Hosts
from tests.kit.killing import kill_at
from tests.kit.kubernetes.hosts import KubernetesHosts, namespace_settings
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.reclaiming import Operator
from tests.kit.support import Cli
from tests.kit.waits import eventually

MOST_REQUESTS = 40
ASKED = Request("T", on_reclaim="answer")


def asked(sweep: Sweep, service: Service, request: Request = ASKED) -> tuple[Handle, Operator]:
    """A handle that somebody wants back."""
    handle = service.handles.require(sweep.acquire(service, request))
    operator = Operator(service.backend_of(handle).notes)
    operator.mark(handle)
    return handle, operator


def can_use(service: Service, handle: Handle) -> bool:
    try:
        use(service, whole(handle), *handle.names)
    except NotAllowed:
        return False
    return True


def killed(sweep: Sweep, number: int, *args: str) -> int:
    """Run a command and kill it at one of its calls into the system."""

    def work() -> None:
        kill_at(number)
        leasectl(sweep.cli.state_dir, sweep.output, *args)

    return ending(fork(work))


def test_an_answer_can_be_killed_anywhere(cli: Cli, tmp_path: Path) -> None:
    sweep = Sweep(cli, tmp_path)
    sweep.keep_a_keeper()

    def attempt(number: int) -> int:
        with sweep.service() as service:
            handle, operator = asked(sweep, service)
            code = killed(sweep, number, "answer", handle.id, "--ready")
            is_used = can_use(service, handle)
            assert operator.free() == (() if is_used else handle.names)
            assert code != 0 or not is_used
            assert can_use(service, handle) == is_used
            release(service, whole(handle))
        sweep.check(f"answer killed at event {number}")
        return code

    sweep.kill_each(attempt, stride=12, at_least=20)
    print(f"{sweep.kills} kills")


def test_a_use_can_be_killed_anywhere(cli: Cli, tmp_path: Path) -> None:
    sweep = Sweep(cli, tmp_path)
    sweep.keep_a_keeper()

    def attempt(number: int) -> int:
        with sweep.service() as service:
            handle, operator = asked(sweep, service)
            code = killed(sweep, number, "use", handle.id, "--name", *handle.names)
            got = answer(service, whole(handle), "ready")
            assert got in ((), handle.names)
            assert code != 0 or got == ()
            assert can_use(service, handle) == (got == ())
            assert operator.free() == got
            release(service, whole(handle))
        sweep.check(f"use killed at event {number}")
        return code

    sweep.kill_each(attempt, stride=12, at_least=15)
    print(f"{sweep.kills} kills")


def test_an_answer_on_etcd_can_be_killed_around_each_request(hosts: Hosts, tmp_path: Path) -> None:
    sweep = Sweep(hosts.new(), tmp_path, backend=hosts.url, capacity=2 * MOST_REQUESTS)
    kill_answers(sweep)


def test_an_answer_on_kubernetes_can_be_killed_around_each_request(
    kubernetes_hosts: KubernetesHosts, namespace: Namespace, tmp_path: Path
) -> None:
    cli, settings = kubernetes_hosts.new(), namespace_settings(namespace, tmp_path)
    capacity = 2 * MOST_REQUESTS
    kill_answers(
        Sweep(cli, tmp_path, backend=kubernetes_hosts.url, settings=settings, capacity=capacity)
    )


def kill_answers(sweep: Sweep) -> None:
    """Kill the answers of as many holders as they have requests, before and after each."""
    sweep.keep_a_keeper()
    request = ASKED._replace(ttl_seconds=120.0)
    used: set[str] = set()
    killed: set[str] = set()
    refused: dict[str, Handle] = {}
    with sweep.service() as service:
        for number in range(1, MOST_REQUESTS):
            kills_before = sweep.kills
            for after in (False, True):
                handle, operator = asked(sweep, service, request)

                def work() -> None:
                    kill_at_request(number, after=after)  # noqa: B023
                    leasectl(sweep.cli.state_dir, sweep.output, "answer", handle.id, "--ready")  # noqa: B023

                (name,) = handle.names
                if ending(fork(work)) != 0:
                    sweep.kills += 1
                    killed.add(name)
                if can_use(service, handle):
                    used.add(name)
                else:
                    refused[name] = handle
            if sweep.kills == kills_before:
                break
        else:
            raise AssertionError(f"still being killed after {MOST_REQUESTS} requests")
        # What was decided and perhaps not sent, the keeper sends.
        eventually(lambda: set(refused) <= {note.name for note in operator.in_state("ready")})
        assert set(operator.free()) == set(refused)
        # Some kills come before the answer is noted, and some after it.
        assert used & killed
        assert set(refused) & killed
        for handle in refused.values():
            asked_of(service, whole(handle))
            record = service.handles.require(handle.id)
            assert (record.state, record.lost, record.names) == ("released", False, ())
        for handle in service.handles.active():
            release(service, whole(handle))
    print(f"{sweep.kills} kills")
