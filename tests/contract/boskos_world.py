"""Boskos as a `World`: the stand-in, or a real one, and clients that are processes.

Without what it has no words for: its queue isn't shown, and its pools are made by whoever runs it.
So types of a Boskos that is there stand for the pools that a test makes, and what a pool would have
less is somebody else's. What its reaper does, `let_pass` does. Its view of Kubernetes lags, so who
has acquired or given back goes on when it shows that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, cast

from leasectl.backends.boskos.backend import BoskosBackend
from leasectl.backends.contract import Patience, Progress
from leasectl.backends.kinds import Context
from leasectl.errors import LeaseError, NotFound
from leasectl.model import Claimant, Lease, Request
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from tests.contract.forked import ForkedClient, LostFile, SharedClock
from tests.contract.world import Hold
from tests.kit.boskos.any_boskos import AnyBoskos, SharedBoskos
from tests.kit.recorded import NoJournal
from tests.kit.waits import eventually

TYPES = ("T", "U")
_NOT_OURS = "the-rest"


class _Resource(NamedTuple):
    """As the contract asks for it: its name, and whether somebody has it."""

    name: str
    lease: str


class _Pool(NamedTuple):
    resources: tuple[_Resource, ...]


class _Pools:
    """What the contract's tests do to pools before they begin."""

    def __init__(self, types: Mapping[str, AnyBoskos]) -> None:
        self._types = types

    def create_pool(self, pool_type: str, names: Sequence[str]) -> None:
        there = self._types[pool_type]
        assert list(names) == [_shown(each, self._types) for each in there.names[: len(names)]]
        with there.client(_NOT_OURS) as rest:
            for name in there.names[len(names) :]:
                assert rest.acquire_names(name).status == 200

    def pools(self, pool_type: str) -> tuple[_Pool]:
        owners = self._types[pool_type].owners
        return (
            _Pool(
                tuple(
                    _Resource(_shown(name, self._types), owners.get(name, ""))
                    for name in self._types[pool_type].names
                    if owners.get(name) != _NOT_OURS
                )
            ),
        )


class BoskosWorld:
    """Two types of a Boskos, and the processes that use it."""

    ttl_seconds = 1800.0
    keeps_stopped = False
    has_fences = False

    def __init__(self, server: SharedBoskos, folder: Path) -> None:
        self._types = {each: server.one_of_four() for each in TYPES}
        self._losses = LostFile(folder / "lost")
        self._time = SharedClock()
        self._clients: list[_Client] = []
        self._passed = 0.0
        # When each that somebody has was renewed last, in seconds that were let pass.
        self._renewed: dict[tuple[str, str], float] = {}
        self.pools = _Pools(self._types)

    def client(self) -> _Client:
        """A new participant."""
        client = _Client(f"client{len(self._clients)}", self._participant, self._renewed_by)
        self._clients.append(client)
        return client

    def let_pass(self, seconds: float) -> None:
        """Have that time go by, and what nobody renewed be taken away."""
        holders = self._holders()
        self._renewed = {each: self._renewed.get(each, self._passed) for each in holders}
        self._passed += seconds
        self._time.advance(seconds)
        for each, since in self._renewed.items():
            if self._passed - since >= self.ttl_seconds:
                name, owner = each
                with holders[each].client(owner) as its_owner:
                    assert its_owner.release(name).status == 200

    def lost(self) -> list[tuple[str, str]]:
        """The clients, each with a name, that heard of a loss as they renewed or gave back."""
        return self._losses.read()

    def close(self) -> None:
        for client in self._clients:
            client.kill()
        for there in self._types.values():
            there.close()

    def _holders(self) -> dict[tuple[str, str], AnyBoskos]:
        return {
            (name, owner): there
            for there in self._types.values()
            for name, owner in there.owners.items()
            if owner != _NOT_OURS
        }

    def _renewed_by(self, claim_key: str) -> None:
        for each in self._holders():
            if each[1].endswith(f"-{claim_key}/1"):
                self._renewed[each] = self._passed

    def _participant(self, client: ForkedClient) -> Any:
        assert isinstance(client, _Client)
        return _Participant(client, self._types, self._time.clock, self._losses)


class _Client(ForkedClient):
    """A process whose waiting is told by itself, as Boskos shows its queue to nobody."""

    def __init__(
        self,
        claim_key: str,
        participant: Callable[[ForkedClient], Any],
        renewed: Callable[[str], None],
    ) -> None:
        self._renewed = renewed
        super().__init__(claim_key, participant)

    def renew(self, ttl_seconds: float | None = None) -> tuple[str, ...]:
        renewed = super().renew(ttl_seconds)
        self._renewed(self.claim_key)
        return renewed

    def begin_rounds(self, request: Request, rounds: int) -> Callable[[], list[Hold]]:
        super().begin_rounds(request, rounds)
        return lambda: list(self.answer())  # each asks again after more than half a second


class _Participant:
    """What a client does, in its process."""

    def __init__(
        self, client: _Client, types: Mapping[str, AnyBoskos], clock: Clock, losses: LostFile
    ) -> None:
        self._client = client
        self._types = types
        self._losses = losses
        self._clock = clock
        self._warnings: list[str] = []
        self._held: dict[str, str] = {}  # as Boskos calls it, whose it is
        url = types["T"].backend()
        context = Context(url, warn=self._warnings.append, clock=clock)
        self._backend = BoskosBackend(context, cast(State, None))

    def acquire(self, request: Request, wait: float | None) -> tuple[Lease, ...]:
        there = self._types.get(request.type)
        if there is not None:
            name = None if request.name is None else _real(request.name, self._types)
            request = request._replace(type=there.type, name=name)
        owner = f"job/1/host/{request.type}-{self._client.claim_key}/1"
        journal = _Journal(owner)
        patience = Patience(wait_seconds=wait, report=self._report)
        try:
            self._backend.acquire(Claimant(owner, owner, request), journal, patience)
        except LeaseError as error:
            list(self._backend.release(owner, journal.names))
            self._until_shown()
            raise _in_words_of(error, self._types) from None
        self._held.update(dict.fromkeys(journal.names, owner))
        self._until_shown(journal.names)
        leases = journal.leases or ()
        return tuple(each._replace(name=_shown(each.name, self._types)) for each in leases)

    def rounds(self, request: Request, rounds: int) -> list[Hold]:
        holds = []
        for _ in range(rounds):
            leases = self.acquire(request, None)
            since = self._clock.elapsed()
            until = self._clock.elapsed()
            self.free(None)
            holds += [Hold(lease, since, until) for lease in leases]
        return holds

    def free(self, names: Sequence[str] | None) -> tuple[str, ...]:
        wanted = sorted(self._held) if names is None else [_real(n, self._types) for n in names]
        mine = f"job/1/host/{self._types['T'].type}-{self._client.claim_key}/1"
        freed = []
        for name in wanted:
            list(self._backend.release(self._held.get(name, mine), [name]))
            if not self._warnings:
                freed.append(name)
            elif name in self._held:
                self._note_lost([name])
            self._warnings.clear()
            self._held.pop(name, None)
        self._until_shown()
        return tuple(_shown(name, self._types) for name in freed)

    def renew(self, ttl_seconds: float | None = None) -> tuple[str, ...]:
        kept: list[str] = []
        for owner in sorted(set(self._held.values())):
            its = sorted(name for name in self._held if self._held[name] == owner)
            kept += self._backend.renew(owner, its, ttl_seconds=ttl_seconds)
        self._note_lost([name for name in self._held if name not in kept])
        self._held = {name: self._held[name] for name in kept}
        return tuple(_shown(name, self._types) for name in kept)

    def _until_shown(self, names: Sequence[str] = ()) -> None:
        """Wait until Boskos shows that this client has these, and nothing that it doesn't hold."""
        mine = f"-{self._client.claim_key}/1"

        def shown() -> set[str]:
            return {
                name
                for there in self._types.values()
                for name, owner in there.owners.items()
                if owner.endswith(mine)
            }

        eventually(lambda: set(names) <= shown() <= set(self._held), what="Boskos shows it")

    def _note_lost(self, names: Sequence[str]) -> None:
        shown = [_shown(name, self._types) for name in names]
        self._losses.note(self._client.claim_key, shown)

    def _report(self, _: Progress) -> None:
        self._client.note_waiting()


class _Journal(NoJournal):
    """Keeps what has arrived."""

    def __init__(self, owner: str) -> None:
        self.key = owner
        self.names: list[str] = []

    def arrived(self, name: str) -> Lease:
        self.names.append(name)
        return Lease(name, 0, 0, 0, self.key, 0.0, 0.0, None, 0)

    def returning(self, name: str) -> None:
        pass

    def returned(self, name: str) -> None:
        self.names.remove(name)

    def lost_reply(self) -> None:
        """Not noted."""

    def found(self) -> None:
        """Not noted."""


def _real(name: str, types: Mapping[str, AnyBoskos]) -> str:
    """What a name of the contract is called there: ``T--00`` is ``leasectl-pool-07--00``."""
    pool_type, dashes, number = name.partition("--")
    return f"{types[pool_type].type}{dashes}{number}"


def _shown(name: str, types: Mapping[str, AnyBoskos]) -> str:
    for pool_type, there in types.items():
        name = name.replace(f"{there.type}--", f"{pool_type}--")
    return name


def _in_words_of(error: LeaseError, types: Mapping[str, AnyBoskos]) -> LeaseError:
    """An error about the contract's names."""
    return type(error)(_shown(str(error), types)) if isinstance(error, NotFound) else error
