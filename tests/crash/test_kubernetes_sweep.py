"""Commands on Kubernetes are killed at each of their requests, or hear nothing of one.

Each has a pool of its own, and a host: so nobody but the time sees to what the killed had, while
somebody on another host waits for all of it, and who comes to that host later finds all well.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.backends.kubernetes import KubernetesBackend
from leasectl.http.settings import Settings
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import Request, whole
from leasectl.pools import admin
from leasectl.state.directory import State
from leasectl.system.afterwards import finish
from leasectl.system.clock import boottime_seconds
from tests.crash.sweeping import kill_at_request
from tests.kit.forking import ending, fork, leasectl
from tests.kit.invariants import broken_invariants
from tests.kit.killing import EVERY_KILL, each_answer_lost
from tests.kit.kubernetes.access import Access
from tests.kit.kubernetes.hosts import KubernetesHosts
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay
from tests.kit.support import Cli
from tests.kit.waits import eventually

TTL_SECONDS = 10.0  # longer than a busy machine takes from a claim to its answers
COUNT = 3
BACKEND = "kubernetes://"
MOST_REQUESTS = 40
# In part, one kill of so many; the rest of a command's start is another's to sweep.
STRIDE = 1 if EVERY_KILL else 5
# What a waiter takes besides, on a machine that has other things to do.
SLACK_SECONDS = 2.0
VERBS = ("acquire", "each", "release", "renew", "reacquire")


class Killed(NamedTuple):
    """A command that was killed.

    Args:
        when: At which of its requests.
        cli: Its host.
        waiter: The process that waits for all that it had, on another host.
    """

    when: str
    cli: Cli
    waiter: int

    @property
    def waited(self) -> Path:
        """The file in which that says how long it has waited."""
        return self.cli.cwd / "waited"


class Sweep:
    """Hosts on which commands are killed, and who waits for what they had.

    Args:
        namespace: Where the pools are.
        kubeconfig: Of all.
        folder: Where the hosts are.
    """

    def __init__(self, namespace: Namespace, kubeconfig: Path, folder: Path) -> None:
        self._namespace, self._kubeconfig, self._folder = namespace, kubeconfig, folder
        self._aside = Access(kubeconfig, state_id="aside")
        self._turn = 0
        self.killed: list[Killed] = []

    def kill_everywhere(self, verb: str) -> None:
        """Run a command again and again; KILL it before and after its 1st, 2nd, 3rd, … request."""
        killed_before = len(self.killed)
        for number in range(1, MOST_REQUESTS):
            codes = []
            for after in (False, True):
                self._turn += 1
                if self._turn % STRIDE == 0:
                    codes.append(self._kill(verb, number, after=after))
            if codes and 0 in codes:
                # Each name has a request of its own, with a kill before it and one after it.
                assert len(self.killed) - killed_before >= 2 * COUNT // STRIDE
                return
        raise AssertionError(f"still being killed after {MOST_REQUESTS} requests")

    def _kill(self, verb: str, number: int, *, after: bool) -> int:
        pool_type = f"{verb}-{number}-{'after' if after else 'before'}"
        types = [pool_type, f"{pool_type}-beside"] if verb == "each" else [pool_type]
        for each in types:
            self._aside.pools.create_pool(each, [f"{each}--{n}" for n in range(COUNT)])
        folder = self._folder / pool_type
        folder.mkdir()
        cli = Cli(folder / "state", folder)
        arguments = self._arguments(cli, verb, types)

        def work() -> None:
            os.environ["LEASECTL_KUBECONFIG"] = str(self._kubeconfig)
            kill_at_request(number, after=after)
            leasectl(cli.state_dir, folder / "output", *arguments)

        code = ending(fork(work))
        said = (folder / "output.err").read_text()
        assert code in (0, -signal.SIGKILL), (pool_type, code, said)
        if code != 0:
            since = boottime_seconds()
            waiter = fork(lambda: self._wait(types, since, folder / "waited"))
            self.killed.append(Killed(pool_type, cli, waiter))
        else:
            with self._service(cli) as service:
                for handle in service.handles.active():
                    release(service, whole(handle))
            cli.close()
        return code

    def _arguments(self, cli: Cli, verb: str, types: list[str]) -> list[str]:
        if verb in ("acquire", "each"):
            count = ["-c", str(COUNT), "--ttl", f"{TTL_SECONDS:g}s"]
            each = ["--each"] if verb == "each" else []
            return ["acquire", "-q", "--backend", BACKEND, *types, *each, *count]
        with self._service(cli) as service:
            request = Request(types[0], count=COUNT, ttl_seconds=TTL_SECONDS)
            handle = acquire(service, request, patience=Patience(wait_seconds=5))
            announce(service, handle)
        return [verb, "--handle", handle.id, *(["-q"] if verb == "reacquire" else [])]

    @contextlib.contextmanager
    def _service(self, cli: Cli) -> Iterator[Service]:
        """A host's state directory, from inside this process."""
        state = State.open(str(cli.state_dir))
        try:
            yield Service(
                state,
                Context(
                    BACKEND,
                    settings=KubernetesBackend.locate(BACKEND, Settings(), os.environ),
                    caller=Caller("sweep@host", "host"),
                ),
            )
        finally:
            state.close()

    def _wait(self, types: list[str], since: float, waited: Path) -> None:
        """Wait for all that is in some pools; write down how long that took, in seconds."""
        first, *more = types
        wanted = Request(first, COUNT, ttl_seconds=60.0, other_types=tuple(more))
        other = Access(self._kubeconfig, state_id=f"other-{first}")
        other.acquire("other", wanted._replace(needs_all=bool(more)))
        waited.write_text(str(boottime_seconds() - since))
        other.engine.free("other")
        finish()

    def settle(self) -> float:
        """See that all is well; the longest that anybody has waited, in seconds."""
        assert {ending(each.waiter) for each in self.killed} == {0}
        longest = max(float(each.waited.read_text()) for each in self.killed)
        for each in self.killed:
            with self._service(each.cli) as service:
                admin.show(service)
                # By the host's keeper, which may take longer than who waits elsewhere does.
                eventually(functools.partial(_nobody_acquires, service), what=each.when)
                for handle in service.handles.active():
                    assert handle.state == "held", (each.when, handle)
                    assert release(service, whole(handle)) == (), each.when
                # One that was killed right after its last commit has left names files for the next
                # writer, and there may be none.
                with service.state.transaction():
                    pass
            # What its keeper is just giving back is still on record.
            is_sound = functools.partial(_is_sound, each.cli.state_dir)
            with contextlib.suppress(AssertionError):
                eventually(is_sound)
            assert broken_invariants(each.cli.state_dir) == [], each.when
        assert [name for name in self._namespace.lease_names() if "-ticket-" in name] == []
        for name in self._namespace.lease_names():
            assert not self._namespace.lease(name)["spec"].get("holderIdentity"), name
        return longest


def _is_sound(state_dir: Path) -> bool:
    return not broken_invariants(state_dir)


def _nobody_acquires(service: Service) -> bool:
    return all(handle.state != "acquiring" for handle in service.handles.active())


@pytest.fixture
def sweep(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sweep]:
    """A sweep at whose end no keeper is left."""
    monkeypatch.setenv("LEASECTL_KUBECONFIG", str(kubeconfig))
    sweep = Sweep(namespace, kubeconfig, tmp_path)
    yield sweep
    for each in sweep.killed:
        each.cli.close()


def test_commands_can_be_killed_around_each_request(sweep: Sweep) -> None:
    for verb in VERBS:
        sweep.kill_everywhere(verb)
    longest = sweep.settle()
    print(f"{len(sweep.killed)} kills, who waits gets it after {longest:.1f}s at most")
    if EVERY_KILL:  # a measurement, on a machine with nothing else to do
        assert longest <= 2 * TTL_SECONDS + SLACK_SECONDS


def test_whichever_answer_is_lost_commands_do_what_they_say(
    kubernetes_hosts: KubernetesHosts, namespace: Namespace, between_api: Relay
) -> None:
    lost = 0
    for losing in each_answer_lost(between_api, more_than=20, stride=STRIDE):
        pool_type = f"T{losing.number}"
        names = [f"{pool_type}--{n}" for n in range(COUNT)]
        kubernetes_hosts.pool(*names, pool_type=pool_type)
        held = functools.partial(held_in, kubernetes_hosts.access, pool_type)
        # Not forked from here: the relay's threads may hold locks of OpenSSL just then.
        cli = kubernetes_hosts.new(through=between_api, LEASECTL_RELEASE_TIMEOUT="5m")
        losing.begin()
        handle = cli.ok("acquire", "-q", "-t", pool_type, "-c", str(COUNT), "--ttl", "60s").strip()
        assert held() == names, losing.number
        cli.ok("renew", "--handle", handle)
        assert cli.ok("release", "--names", names[0]).strip() == names[0]
        assert held() == names[1:], losing.number
        assert cli.ok("reacquire", "-q", "--handle", handle).strip() == handle
        assert held() == names, losing.number
        assert cli.ok("release", "--handle", handle).split() == names, losing.number
        assert held() == []
        assert broken_invariants(cli.state_dir) == [], losing.number
        cli.close()
        lost += 1
    print(f"{lost} stories, each with another answer lost")
    assert [name for name in namespace.lease_names() if "-ticket-" in name] == []


def held_in(access: Access, pool_type: str) -> list[str]:
    """The names of a pool that are held now."""
    (pool,) = access.pools.pools(pool_type)
    return [each.name for each in pool.resources if each.lease]
