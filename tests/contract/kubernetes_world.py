"""Kubernetes as a `World`: a real API server, clients that are processes with a service account.

Nothing there has a clock that counts: all see for themselves what hasn't been renewed for how long,
by a clock that is put forward for all of them. So time passes in steps that leave the living time
to say that they live; what a dead or a stopped client left in a queue goes as if its time was over.
"""

from __future__ import annotations

import abc
import os
import threading
from multiprocessing.sharedctypes import RawValue
from pathlib import Path

from leasectl.engines.cluster.engine import ClusterSides
from leasectl.engines.cluster.expiry import remove_dead
from leasectl.engines.cluster.objects import WAITER_TTL_SECONDS, Selection, TicketObject
from leasectl.engines.cluster.records import parse_time
from leasectl.engines.cluster.session import WaitSession
from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.opening import open_kubernetes
from leasectl.engines.kubernetes.posting import Posting
from leasectl.engines.notes import Notes
from leasectl.engines.pool_admin import EventLog, Members
from leasectl.engines.values import Values
from leasectl.system.clock import Clock
from leasectl.system.process import this_process
from tests.contract.forked import ForkedClient, LostFile, SharedClock
from tests.contract.world import Client, Participant
from tests.kit.waits import PATIENCE_SECONDS, eventually


class ObservingWorld:
    """A place of its own, and the processes that use it and see who lives.

    Args:
        folder: For what they share.
    """

    ttl_seconds = 10.0
    keeps_stopped = False
    ages_itself = True
    counts_grants = False
    has_fences = True
    numbers_what_happened = False

    def __init__(self, folder: Path) -> None:
        self.losses = LostFile(folder / "lost")
        self.observed = str(folder / "observed")
        self.time = SharedClock()
        self._opened = opened = self.open()
        self._context, self.engine, self.pools = opened.context, opened.engine, opened.pools
        self._clients: list[_Client] = []
        self._of_thread = threading.local()

    @abc.abstractmethod
    def open(self) -> ClusterSides:
        """Open the place, as one process has it."""

    @property
    def members(self) -> Members:
        return self._sides().members

    @property
    def notes(self) -> Notes:
        return self._sides().notes

    @property
    def values(self) -> Values:
        return self._sides().values

    @property
    def events(self) -> EventLog:
        return self._sides().events

    def _sides(self) -> ClusterSides:
        """The place as this thread has it open."""
        if not hasattr(self._of_thread, "opened"):
            self._of_thread.opened = self.open()
        opened: ClusterSides = self._of_thread.opened
        return opened

    def client(self) -> Client:
        client = _Client(f"handle-{len(self._clients)}", self)
        self._clients.append(client)
        return client

    def withdraw(self, client: Client) -> None:
        self.engine.withdraw(client.claim_key)

    def let_pass(self, seconds: float) -> None:
        self.pools.pools()  # and so all is observed, as if somebody had looked in the meantime
        if seconds >= WAITER_TTL_SECONDS:
            for client in self._clients:
                if client.is_stopped:
                    self.end_waiting(client.claim_key)
        eventually(self._all_have_seen, what="who waits sees what is there")
        left = seconds
        while left > 0:
            waiting = self._waiting()
            step = min([left, *(each.ttl_seconds / 3 for each in waiting)])
            self.pass_by(step)
            left -= step
            for client in self._clients:
                client.look_at_time()
            if waiting:
                eventually(self._all_have_renewed)

    def pass_by(self, seconds: float) -> None:
        """Put the clock of all of them forward."""
        self.time.advance(seconds)

    def lost(self) -> list[tuple[str, str]]:
        return self.losses.read()

    def close(self) -> None:
        for client in self._clients:
            ForkedClient.kill(client)  # what it leaves in a queue is nobody's any more

    def end_waiting(self, claim_key: str) -> None:
        """Have the time run out in which a dead waiter's ticket is still there."""
        for ticket in self._tickets(claim_key):
            view = self._context.pool(ticket.pool)
            dead = [name for name in view.tickets if name == ticket.id.name]
            remove_dead(dead, view, self._context)

    def participant(self, client: ForkedClient) -> Participant:
        assert isinstance(client, _Client)
        opened = self.open()
        client.when_to_look(opened.context.session)
        return Participant(
            opened.engine,
            opened,
            self.time.clock,
            claim_key=client.claim_key,
            process=this_process(),
            note_waiting=client.note_waiting,
            count_wakeup=client.count_wakeup,
            count_timed_wait=client.count_timed_wait,
        )

    def _tickets(self, claim_key: str) -> list[TicketObject]:
        return self._context.tickets(claim_key)

    def _waiting(self) -> list[TicketObject]:
        """The tickets of those who can say that they live."""
        running = {each.written for each in self._clients if each.is_running}
        found = self._context.objects.list(Selection(kinds=("ticket",))).items
        tickets = [each for each in found if isinstance(each, TicketObject)]
        return [each for each in tickets if each.claim_key in running]

    def _all_have_seen(self) -> bool:
        """Tell whether those who wait have seen all that was written, by the time that it is."""
        tickets = self._waiting()
        if len(tickets) > self._context.objects.few_before:
            return True  # some don't follow their pool
        by_key = {each.written: each for each in self._clients}
        for ticket in tickets:
            view = self._context.pool(ticket.pool)
            ids = [each.id for each in view.resources.values()]
            latest = max(each.version for each in (*ids, ticket.id))
            if by_key[ticket.claim_key].seen() < latest:
                return False
        return True

    def _all_have_renewed(self) -> bool:
        now = self.time.clock.wall()
        return all(
            now - parse_time(each.renewed) < each.ttl_seconds / 3 for each in self._waiting()
        )


class KubernetesWorld(ObservingWorld):
    """A namespace of its own, and the processes that use it."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._choice = choose(KubernetesAddress(kubeconfig=str(kubeconfig)), {})
        super().__init__(folder)

    def open(self) -> ClusterSides:
        # Whether an answer is late is a matter of this machine's time.
        api, namespace = Api(self._choice, clock=Clock()), self._choice.namespace
        return open_kubernetes(
            api,
            namespace,
            state_id="world",
            observed_path=self.observed,
            lost=self.losses.note,
            clock=self.time.clock,
            caller="world",
            # A client sends its events before it goes on, as a command does that ends. A busy
            # machine drops none of them.
            posting=Posting(
                api,
                namespace,
                begin=lambda work: work(),
                longest_seconds=PATIENCE_SECONDS,
                clock=Clock(),
            ),
        )


class _Client(ForkedClient):
    def __init__(self, claim_key: str, world: ObservingWorld) -> None:
        self._world = world
        self._read_fd, self._write_fd = os.pipe()
        self._seen = RawValue("q", 0)
        self._renewed_at = RawValue("d", 0.0)
        super().__init__(claim_key, world.participant)
        os.close(self._read_fd)

    def look_at_time(self) -> None:
        """Have it see that the clock has jumped; its timers run on the kernel's, which hasn't."""
        if self.is_running:
            os.write(self._write_fd, b".")

    def seen(self) -> int:
        """The version of the newest that it has seen of a pool that it waits in."""
        os.write(self._write_fd, b"?")
        return int(self._seen.value)

    @property
    def written(self) -> str:
        """Its claim key as it is written."""
        return f"world/{self.claim_key}"

    def renewed_at(self) -> float:
        """When it has renewed all its tickets last, on the elapsed clock."""
        os.write(self._write_fd, b"?")
        return float(self._renewed_at.value)

    def when_to_look(self, session: WaitSession) -> None:
        def run() -> None:
            while asked := os.read(self._read_fd, 1):
                if asked == b".":
                    session.look_at_time()
                views = [each.view() for each in list(session._watches.values())]
                sent = [each.ticket.sent_at for each in list(session._due)]
                self._renewed_at.value = min(sent, default=session._clock.elapsed())
                self._seen.value = max((each.version for each in views if each), default=0)

        threading.Thread(target=run, daemon=True).start()

    def kill(self) -> None:
        super().kill()
        self._world.end_waiting(self.claim_key)
