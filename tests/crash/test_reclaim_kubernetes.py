"""Reclaims on Kubernetes that are killed around each of their requests, or hear nothing of one.

All that is written is followed meanwhile: no lease is taken back but as ready, and each only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Callable, cast

import pytest

from leasectl.engines.cluster.objects import Claim
from leasectl.leases.marks import Mark, MarkState, encode_mark, parse_mark
from leasectl.leases.service import Service
from tests.crash.handshake_judge import Handshakes, claims_in
from tests.crash.sweeping import Sweep
from tests.crash.test_reclaim import Asked
from tests.kit.killing import EVERY_KILL, Losing, each_answer_lost
from tests.kit.kubernetes.history import LeaseHistory
from tests.kit.kubernetes.hosts import KubernetesHosts, namespace_settings
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay
from tests.kit.support import Cli
from tests.kit.waits import eventually

ANSWER_STRIDE = 1 if EVERY_KILL else 15


@pytest.fixture
def handshakes(
    kubernetes_hosts: KubernetesHosts, namespace: Namespace
) -> Iterator[Callable[[], Handshakes]]:
    """All that was written of marks so far, whenever it is asked for; right to the end."""
    history = LeaseHistory(namespace)

    def upto_now() -> Handshakes:
        return Handshakes(claims_in(each for _, each in history.upto_now()))

    yield upto_now
    assert upto_now().violations == []


class AskedOnKubernetes(Asked):
    """The same; what was freed the writes say, as events may get lost with who was killed."""

    def __init__(
        self, sweep: Sweep, hosts: KubernetesHosts, handshakes: Callable[[], Handshakes]
    ) -> None:
        super().__init__(sweep, hosts.url)
        self._handshakes = handshakes

    def freed(self, service: Service) -> list[str]:
        ends = self._handshakes().ends
        own = {(each.name, each.fence): each.name for each in self.handle.leases}
        assert {ends[each] for each in own if each in ends} <= {"ready"}
        return [name for lease, name in own.items() if lease in ends]


def test_a_reclaim_can_be_killed_around_each_of_its_requests(
    kubernetes_hosts: KubernetesHosts,
    namespace: Namespace,
    tmp_path: Path,
    handshakes: Callable[[], Handshakes],
) -> None:
    hosts = kubernetes_hosts
    settings = namespace_settings(namespace, tmp_path)
    sweep = Sweep(hosts.new(), tmp_path, backend=hosts.url, settings=settings)

    def attempt(number: int) -> int:
        asked = AskedOnKubernetes(sweep, hosts, handshakes)
        code = asked.kill(number)
        asked.check(f"killed around request {number / 2}")
        return code

    sweep.kill_each(attempt, stride=19, at_least=3)
    print(f"{sweep.kills} kills, {len(handshakes().ends)} leases")


class Handshake:
    """A reclaim on one host and a holder on another, who may both hear nothing of a request.

    Args:
        hosts: Where the pool is.
        between: What their requests go through.
    """

    def __init__(self, hosts: KubernetesHosts, between: Relay) -> None:
        self._hosts, self._between = hosts, between
        hosts.pool("a", "b")
        self._operator = hosts.new(through=between)

    def shake(self, losing: Losing) -> None:
        """Have one of two leases be kept, and so the other be taken back."""
        holder = self._hosts.new(through=self._between)
        asked = ("acquire", "-q", "-t", "T", "-c", "2", "--ttl", "60s", "--on-reclaim", "answer")
        handle = holder.ok(*asked).strip()
        answer = ("answer", "--handle", handle)
        losing.begin()
        reclaim = self._operator.start(
            "reclaim", "T", "--excess", "1", "--delay", "0", "-w", "20s", "-q"
        )
        kept = self._asked_for()
        assert holder.ok(*answer, "--keep", "--names", kept).strip() == kept
        taken = self._asked_for(but=kept)
        assert holder.ok(*answer, "--ready", "--names", taken).strip() == taken
        assert holder("use", "--handle", handle, "--name", taken).code != 0, losing.number
        finished = reclaim.finish()
        assert (finished.code, finished.out.strip()) == (0, taken), (losing.number, finished)
        self._check(holder, handle, kept)
        holder.close()

    def _asked_for(self, *, but: str = "") -> str:
        """A name that is marked, once one is."""

        def marked() -> list[str]:
            notes = self._hosts.access.backend.notes.of_pool("T")
            marks = {note.name: parse_mark(note.text) for note in notes if note.name != but}
            return [name for name, mark in marks.items() if mark and mark.state == "marked"]

        return eventually(marked, what="one is asked for")[0]

    def _check(self, holder: Cli, handle: str, kept: str) -> None:
        """What was kept can be used, and nothing else is had; give it back."""
        assert holder.ok("marks", "--handle", handle, "--json").strip() == "[]"
        assert Path(handle).read_text() == kept
        holder.ok("use", "--handle", handle, "--name", kept)
        holder.ok("unuse", "--handle", handle, "--name", kept)
        assert holder.ok("release", "--handle", handle).strip() == kept


def test_whichever_answer_is_lost_what_is_ready_is_taken_back_once(
    kubernetes_hosts: KubernetesHosts, between_api: Relay, handshakes: Callable[[], Handshakes]
) -> None:
    handshake = Handshake(kubernetes_hosts, between_api)
    lost = stories = 0
    for losing in each_answer_lost(between_api, more_than=30, stride=ANSWER_STRIDE):
        handshake.shake(losing)
        lost += losing.number <= losing.asked()
        stories += 1
    assert sorted(handshakes().ends.values()) == [""] * stories + ["ready"] * stories
    print(f"{lost} answers lost")


class TestTheJudge:
    """What would be seen, had it happened."""

    @pytest.mark.parametrize(
        ("notes", "end", "violations"),
        [
            ([], "", 0),
            (["1 marked", "1 ready"], "ready", 0),
            (["1 marked", "1 keep", "", "2 marked"], "marked", 0),
            (["1 ready"], "ready", 1),
            (["1 marked", "1 keep", "1 ready"], "ready", 1),
            (["1 marked", "2 ready"], "ready", 1),
            (["1 marked", "2 marked", "2 keep"], "keep", 1),
        ],
    )
    def test_no_answer_comes_from_nowhere(
        self, notes: list[str], end: str, violations: int
    ) -> None:
        claims = [claim(7), *(claim(7, each) for each in notes)]
        found = Handshakes(("a", each) for each in [*claims, None])
        assert (found.ends, len(found.violations)) == ({("a", 7): end}, violations)

    def test_what_has_ended_never_comes_back(self) -> None:
        found = Handshakes(("a", each) for each in (claim(7), claim(8), claim(7), None))
        assert found.violations == ["a has ended twice"]


def claim(fence: int, said: str = "") -> Claim:
    """A claim, at which that is noted; nothing, if not given."""
    note = None
    if said:
        mark_id, state = said.split()
        note = encode_mark(Mark(mark_id, "somebody", cast("MarkState", state), 60.0, 0.0))
    return Claim("k", "", 0, 0, fence, "holder", 0.0, 0.0, "", None, 0, note=note)
