"""``pool move`` on Kubernetes is killed around each of its requests, or hears nothing of one.

All that is written is followed meanwhile: at every instant each name is in one pool, and in one
where it may be. The next command goes on with what the killed had begun, and nothing is left.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from leasectl.engines.kubernetes.names import ENTERING
from tests.crash.member_judge import WrittenStory
from tests.crash.sweeping import kill_at_request
from tests.kit.forking import ending, fork, leasectl
from tests.kit.invariants import broken_invariants
from tests.kit.killing import EVERY_KILL, Losing, each_answer_lost
from tests.kit.kubernetes.history import LeaseHistory
from tests.kit.kubernetes.hosts import KubernetesHosts
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.pool_changes import add_resources
from tests.kit.relay import Relay
from tests.kit.support import Cli

MOST_REQUESTS = 60
STRIDE = 1 if EVERY_KILL else 5
ANSWER_STRIDE = 1 if EVERY_KILL else 9
LIFE_STRIDE = 1 if EVERY_KILL else 63
KILLED = -signal.SIGKILL
Arm = Callable[[], None]


class Members:
    """Names in the pools A and B, whose commands are killed.

    Args:
        hosts: Where their pools are.
        cli: Whose commands are killed.

    Attributes:
        killed: For each kill, whether the names had been moved.
    """

    def __init__(self, hosts: KubernetesHosts, cli: Cli) -> None:
        self._hosts, self.cli = hosts, cli
        self.killed: list[bool] = []
        for pool_type in ("A", "B"):
            hosts.pool(f"{pool_type}-stays", pool_type=pool_type)

    def pool_of(self, name: str) -> str | None:
        """Where a name is now."""
        there = [
            pool.type
            for pool in self._hosts.access.pools.pools(None)
            if name in [each.name for each in pool.resources]
        ]
        assert len(there) <= 1, (name, there)
        return there[0] if there else None

    def move(self, number: int, arm: Arm) -> int:
        """Have two names be moved by who is killed, and by who comes next; returns how it ended."""
        names = [f"m{number}-1", f"m{number}-2"]
        add_resources(self._hosts.access.members, "A", names)
        command = ("pool", "move", "-q", "--names", ",".join(names), "--to", "B")
        code = self.run(arm, *command)
        assert code in (0, KILLED), (number, self.said())
        where = [self.pool_of(each) for each in names]
        assert set(where) <= {"A", "B"}, (number, where)
        assert code or where == ["B", "B"], (number, where)
        if code:
            self.killed.append(where == ["B", "B"])
        self.cli.ok(*command)
        assert [self.pool_of(each) for each in names] == ["B", "B"], number
        return code

    def move_when_free(self, number: int, arm: Arm) -> int:
        """The same of one that is held, and is to go with its release."""
        name, handle, command = self._held(f"f{number}")
        code = self.run(arm, *command)
        assert code in (0, KILLED), (number, self.said())
        assert self.pool_of(name) == "A", number
        if code:
            self.killed.append(False)
        self.cli.ok(*command)
        self.cli.ok("release", "--handle", handle)
        assert self.pool_of(name) == "B", number
        return code

    def release_that_moves(self, number: int, arm: Arm) -> int:
        """Have a name be moved by a release, by who is killed, and by who comes next."""
        name, handle, command = self._held(f"r{number}")
        self.cli.ok(*command)
        code = self.run(arm, "release", "--handle", handle)
        assert code in (0, KILLED), (number, self.said())
        if code:
            self.killed.append(self.pool_of(name) == "B")
        self.cli("release", "--handle", handle)  # of which the killed may have been the last
        assert self.pool_of(name) == "B", number
        return code

    def _held(self, name: str) -> tuple[str, str, tuple[str, ...]]:
        """A name that is held, its handle, and the command that moves it once it is free."""
        add_resources(self._hosts.access.members, "A", [name])
        handle = self.cli.ok("acquire", "-q", "-t", "A", "--name", name, "--ttl", "60s").strip()
        return name, handle, ("pool", "move", "-q", "--names", name, "--to", "B", "--when-free")

    def move_all(self, losing: Losing) -> None:
        """Have names be moved, at once and by a release, by who loses an answer."""
        free, held = f"m{losing.number}", f"f{losing.number}"
        add_resources(self._hosts.access.members, "A", [free, held])
        handle = self.cli.ok("acquire", "-q", "-t", "A", "--name", held, "--ttl", "60s").strip()
        losing.begin()
        self.cli.ok("pool", "move", "-q", "--names", f"{free},{held}", "--to", "B", "--when-free")
        assert [self.pool_of(each) for each in (free, held)] == ["B", "A"], losing.number
        assert self.cli.ok("release", "--handle", handle).strip() == held, losing.number
        assert self.pool_of(held) == "B", losing.number

    def live(self, losing: Losing) -> None:
        """Have names come, be moved and go in each way that there is, by who loses an answer."""
        ok, number = self.cli.ok, losing.number
        joined, stays, moved, other = (f"{each}{number}" for each in "jsmo")
        losing.begin()
        ok("pool", "expect", "B", "--names", joined)
        ok("pool", "expect", "B", "--match", f"x{number}-*")
        ok("pool", "set", "A", "--default", "--grace", "0s")
        ok("pool", "add", "A", "--names", f"{stays},{moved}")
        ok("pool", "cordon", "--names", stays)
        ok("pool", "uncordon", "--names", stays)
        handle = ok("pool", "join", "B", "--name", joined, "--hold", "--ttl", "60s").strip()
        ok("pool", "move", "-q", "--names", moved, "--to", "B")
        ok("release", "--handle", handle)
        where = [self.pool_of(each) for each in (joined, stays, moved)]
        assert where == ["B", "A", "B"], number
        ok("pool", "leave", "B", "--name", joined)
        ok("pool", "expect", "B", "--names", joined, "--match", f"x{number}-*", "--drop")
        ok("pool", "remove", "A", "--names", stays)
        ok("pool", "create", other, "--count", "2")
        ok("pool", "delete", other)
        assert [self.pool_of(each) for each in (joined, stays, moved)] == [None, None, "B"], number

    def run(self, arm: Arm, *arguments: str) -> int:
        """Run a command in a process that does something before; returns how it ended."""

        def work() -> None:
            arm()
            leasectl(self.cli.state_dir, self._output, *arguments, "--backend", self._hosts.url)

        return ending(fork(work))

    @property
    def _output(self) -> Path:
        return self.cli.cwd / "output"

    def said(self) -> str:
        """What the last command said on stderr."""
        return Path(f"{self._output}.err").read_text()


class Story:
    """Names that are moved again and again, and all that is written of them.

    Args:
        hosts: Where their pools are.
        namespace: The same; nothing is there yet.
        through: What is between who moves them and the API server; nothing, if not given.
    """

    def __init__(
        self, hosts: KubernetesHosts, namespace: Namespace, *, through: Relay | None = None
    ) -> None:
        self._hosts, self._namespace = hosts, namespace
        self._history = LeaseHistory(namespace)
        self.members = Members(hosts, hosts.new(through=through))

    def judge(self) -> int:
        """See that all was well at every instant, and is; returns how many names were moved."""
        cli = self.members.cli
        cli.ok("status", "--json")
        assert broken_invariants(cli.state_dir) == []
        story = WrittenStory(self._history.upto_now())
        assert story.violations == []
        for lease in self._namespace.all_leases():
            assert ENTERING not in lease["metadata"]["labels"], lease
            assert not lease["spec"].get("holderIdentity"), lease
        assert self._hosts.is_free("A")
        assert self._hosts.is_free("B")
        return story.moves


def test_a_move_can_be_killed_around_each_request(
    kubernetes_hosts: KubernetesHosts, namespace: Namespace
) -> None:
    story = Story(kubernetes_hosts, namespace)
    members = story.members
    killed = members.killed
    for move in (members.move, members.move_when_free, members.release_that_moves):
        killed_before = len(killed)
        for number in range(2, MOST_REQUESTS, STRIDE):  # two for each request
            code = move(number, partial(kill_at_request, number // 2, after=bool(number % 2)))
            if code == 0:
                break
        else:
            raise AssertionError("still being killed")
        # The first kill is before anything was sent. With all kills, some are after the move.
        is_swept = EVERY_KILL and move != members.move_when_free
        assert set(killed[killed_before:]) >= ({False, True} if is_swept else {False})
    print(f"{len(killed)} kills, {story.judge()} moves")


@pytest.mark.parametrize(
    ("lived", "answers", "stride"),
    [(Members.move_all, 18, ANSWER_STRIDE), (Members.live, 100, LIFE_STRIDE)],
    ids=["of a move", "of a life"],
)
def test_whichever_answer_is_lost_names_are_where_they_were_said_to_be(
    kubernetes_hosts: KubernetesHosts,
    namespace: Namespace,
    between_api: Relay,
    lived: Callable[[Members, Losing], None],
    answers: int,
    stride: int,
) -> None:
    story = Story(kubernetes_hosts, namespace, through=between_api)
    lost = 0
    for losing in each_answer_lost(between_api, more_than=answers, stride=stride):
        lived(story.members, losing)
        lost += losing.number <= losing.asked()
    print(f"{lost} answers lost, {story.judge()} moves")
