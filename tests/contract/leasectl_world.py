"""`leasectl serve` through leasectl's own client, as a `World`.

A process serves an embedded pool; the clients are processes that know only its address. What the
server's own clock counts can't be put forward, so it is shortened.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.backends.serve import backend as serve_backend
from leasectl.backends.serve.backend import ServeBackend
from leasectl.backends.serve.connection import Calls
from leasectl.backends.serve.sides import ServeSides
from leasectl.engines.contract import Engine
from leasectl.engines.notes import Notes
from leasectl.engines.pool_admin import EventLog, Members, PoolAdmin
from leasectl.engines.values import Values
from leasectl.http.settings import Settings
from leasectl.leases.service import Service
from leasectl.model import Claimant, Lease, Request
from leasectl.server import served_leases, serving
from leasectl.server.served_leases import Rules
from leasectl.server.tokens import Tokens
from leasectl.state.directory import State
from leasectl.system.process import this_process
from tests.contract.forked import _FORK, ForkedClient
from tests.contract.local_world import LocalWorld
from tests.contract.world import Client, Participant
from tests.kit.recorded import NoJournal
from tests.kit.waits import PATIENCE_SECONDS, eventually

# Claims of the contract that are no promises of a server to its clients, and why not.
_OTHERWISE = {
    "test_who_gave_up_can_ask_again": "a claim key that was withdrawn is never used again",
    "test_who_died_gave_up": "the server only sees that its connection ended, and says so",
    "test_the_queue_shows_which_process_waits_for_which_resource_with_what_labels": (
        "the labels also name the client's address and token"
    ),
    "test_a_pool_shows_who_holds_what": "the labels also name the client's address and token",
}


class LeasectlWorld(LocalWorld):
    """One server, and the processes that use it."""

    def __init__(self, folder: Path, claim: str) -> None:
        if claim in _OTHERWISE:
            pytest.skip(_OTHERWISE[claim])
        folder.mkdir()
        super().__init__(folder / "state")
        tokens, token = folder / "tokens", folder / "token"
        tokens.write_text("contract use,admin secret\n")
        token.write_text("secret\n")
        self._settings = Settings(token_file=str(token))
        bound = serving.listen("127.0.0.1", 0)
        self._url = f"leasectl+{serving.url_of(bound)}"
        self._server = _FORK.Process(target=self._serve, args=(bound, str(tokens)), daemon=True)
        self._server.start()
        bound.close()
        self._all_calls: list[Calls] = []
        self._calls = self._open()
        self.engine = cast("Engine", _Engine(self._calls))  # type: ignore[assignment]
        self.events: EventLog = ServeSides(self._calls).events  # type: ignore[assignment]

    @property
    def pools(self) -> PoolAdmin:
        return ServeSides(self._open()).pools

    @property
    def members(self) -> Members:
        return ServeSides(self._open()).members

    @property
    def notes(self) -> Notes:
        return ServeSides(self._open()).notes

    @property
    def values(self) -> Values:
        return ServeSides(self._open()).values

    def client(self) -> Client:
        client = _Client(f"handle-{len(self._clients)}", self)
        self._clients.append(client)
        return client

    def withdraw(self, client: Client) -> None:
        self._calls.call("engine.withdraw", client.claim_key)

    def lost(self) -> list[tuple[str, str]]:
        lost = [each for each in self.events.read() if each.kind == "lost"]
        return [(event.handle, name) for event in lost for name in event.names]

    def close(self) -> None:
        for client in self._clients:
            client.kill()
        for calls in self._all_calls:
            calls.close()
        self._server.kill()
        self._server.join()
        self.state.close()

    def participant(self, client: ForkedClient) -> Participant:
        return _Participant(client, self._open())

    def is_waiting(self, claim_key: str) -> bool:
        return bool(self.state.query("SELECT 1 FROM ticket WHERE owner = ? LIMIT 1", claim_key))

    def _open(self) -> Calls:
        self._all_calls.append(Calls(Context(self._url, self._settings, clock=self.clock)))
        return self._all_calls[-1]

    def _serve(self, bound: socket.socket, token_file: str) -> None:
        served_leases.KEEP_POSITION_SECONDS = 0.05
        clock = self.clock
        vars(serving)["Clock"] = lambda: clock
        service = Service(
            State.open(str(self.directory)), Context("local:", caller=Caller("s", "h"), clock=clock)
        )
        serving.serve(
            service,
            bound,
            rules=Rules(acquire_seconds=3600.0),
            tokens=Tokens(token_file),
            trusted=(),
            guard=None,
            own_name="127.0.0.1",
            ready=lambda: None,
        )
        os._exit(0)


class _Client(ForkedClient):
    def __init__(self, claim_key: str, world: LeasectlWorld) -> None:
        self._world = world
        super().__init__(claim_key, world.participant, world.is_waiting)

    def kill(self) -> None:
        super().kill()
        eventually(lambda: not self._world.is_waiting(self.claim_key))

    def stop(self) -> None:
        pytest.skip("its server waits for a stopped client, whose grant then lasts for one ttl")

    def wakeups(self) -> int:
        pytest.skip("its server wakes in its stead")

    timed_waits = wakeups


class _Engine:
    """What of an engine a server's clients have: their claims."""

    def __init__(self, calls: Calls) -> None:
        self._backend = ServeBackend(calls.context, cast("State", None))
        self._calls = calls
        self.atomic = self._backend.atomic
        self.withdraw = self._backend.withdraw

    def free(self, claim_key: str, names: Any = None, *, by: str = "command") -> tuple[str, ...]:
        freed: tuple[str, ...] = self._calls.call("engine.free", claim_key, names, by)
        return freed

    def renew(self, claim_key: str, *, ttl_seconds: float | None = None) -> tuple[str, ...]:
        return self._backend.renew(claim_key, (), ttl_seconds=ttl_seconds)

    def waiter(self, claimant: Claimant, *, until: float | None) -> None:
        pytest.skip("its server takes the steps of a waiter")


class _Participant(Participant):
    def __init__(self, client: ForkedClient, calls: Calls) -> None:
        serve_backend.ANSWER_SECONDS = PATIENCE_SECONDS  # this process is only this client
        self._engine = cast("Engine", _Engine(calls))
        self._serve = ServeBackend(calls.context, cast("State", None))
        self._owner = client.claim_key

    def acquire(self, request: Request, wait: float | None) -> tuple[Lease, ...]:
        claimant = Claimant(self._owner, f"job/1/host/{self._owner}", request, this_process())
        journal = NoJournal()
        self._serve.acquire(claimant, journal, Patience(wait_seconds=wait))  # type: ignore[arg-type]
        return journal.leases or ()
