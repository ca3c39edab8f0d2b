"""The class of a backend, and the registry that maps URL schemes to such classes.

A new backend is a subclass of `Backend` in a module of its own, and a line in `leasectl.backends`.
Help, errors, completion, `doctor` and the verbs read the class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.contract import NOBODY, Caller
from leasectl.errors import InvalidRequest, NotSupported
from leasectl.http.settings import Settings, parse_settings
from leasectl.system.clock import Clock
from leasectl.text.durations import format_duration
from leasectl.text.wording import nearest, printable_url

if TYPE_CHECKING:
    from leasectl.backends.contract import Patience, RemoteJournal, Turn
    from leasectl.backends.servers import ClaimWatch, Renew, RenewalTerms, Timing, TypeCounts
    from leasectl.engines.contract import LostListener
    from leasectl.engines.notes import Notes
    from leasectl.engines.pool_admin import EventLog, Members, PoolAdmin, Sides
    from leasectl.engines.values import Values
    from leasectl.model import Claimant, Handle, ReleasedBy, Request
    from leasectl.state.directory import State
    from leasectl.system.poll import Interrupt

# The embedded pool's URL, which is also the default.
LOCAL = "local:"


class Context(NamedTuple):
    """What a command or a client has resolved before it asks a backend for anything.

    Args:
        url: Names the backend.
        settings: How to talk to its server.
        caller: On whose behalf; pools' events name it.
        release_seconds: Time limit of a release on a server; None for the server's usual one.
        rest_seconds: How long a server that hasn't answered isn't asked again.
        warn: Called with a line for people, about a problem that ends nothing.
        clock: Where times come from.
        known_kind: The class of the URL's scheme, where it has been looked up.
    """

    url: str
    settings: Settings = Settings()
    caller: Caller = NOBODY
    release_seconds: float | None = None
    rest_seconds: float = 0.0
    warn: Callable[[str], None] = lambda _: None
    clock: Clock = Clock()
    known_kind: Kind | None = None

    @property
    def kind(self) -> Kind:
        """Return the class of the URL's scheme, or raise InvalidRequest if there is none."""
        return self.known_kind or kind_of(self.url)

    def at(self, url: str, settings: str) -> Context:
        """Return the same for another backend, with settings as `encode_settings` wrote them."""
        kind = self.known_kind if url == self.url else None
        return self._replace(url=url, settings=parse_settings(settings), known_kind=kind)


class HasSides:
    """Something that has the sides of one store."""

    @property
    def sides(self) -> Sides:
        """The sides of its store; NotSupported where the pools aren't its own."""
        raise NotImplementedError

    @property
    def pools(self) -> PoolAdmin:
        return self.sides.pools

    @property
    def events(self) -> EventLog:
        return self.sides.events

    @property
    def members(self) -> Members:
        return self.sides.members

    @property
    def notes(self) -> Notes:
        return self.sides.notes

    @property
    def values(self) -> Values:
        return self.sides.values


class Backend(HasSides):
    """A source of leases. The class has the facts of a kind of backend; an instance is opened.

    What is defined here is so of a backend without pools of its own that can do nothing but lease.
    It is also what is known of a backend that only another version has.

    Args:
        context: Its URL, and how to come to it.
        state: Where this machine's handles are recorded.

    Attributes:
        url: What chose it.
        title: What it is.
        prefix: What its URLs begin with.
        choice: How to choose it, for errors.
        help: How to choose it, for help.
        takes_address: Its URLs say where a server is; else the prefix is the only URL.
        remote: Its leases live on a server; else they change in one transaction with the records.
        has_pools: It has pools of its own, which can be shown and changed.
        pools_are: Where its pools are, for errors, if they aren't its own; empty for nowhere.
        can_be_served: `serve` can lease from it for others.
        default_ttl_seconds: The ttl of a request that names none; None: it doesn't expire.
        is_ttl_in_url: The URL says how long leases last; see `timing`.
        claims_by_identity: A claim key is the holder's identity, with the acquisition: its server
            shows it to people.
        releases_by_name: A release by bare name hits every holder; else only the claim that is
            named along with it.
        outlives_steps: A later step of a job may give back what an earlier one took, as the server
            holds it meanwhile: the end of a step must not release it there.
        grants_nothing: Every request succeeds, and nothing is leased.
        counts_types: Its server tells only how many resources of a type there are; see `counts`.
        is_cluster: Its URLs name a namespace in a cluster of Kubernetes, which has nodes.
    """

    title = "a backend of another version"
    prefix = ""
    choice = ""
    help = ""
    takes_address = True
    remote = True
    has_pools = False
    pools_are = ""
    can_be_served = False
    default_ttl_seconds: float | None = None
    is_ttl_in_url = False
    claims_by_identity = False
    releases_by_name = False
    outlives_steps = False
    grants_nothing = False
    counts_types = False
    is_cluster = False

    def __init__(self, context: Context, state: State) -> None:
        self.url = context.url
        self._state = state

    # What needs no opened state directory.

    @classmethod
    def check_url(cls, url: str) -> None:
        """Look at a URL with this class's scheme, and only at that.

        Raises:
            InvalidRequest: It can't be right.
        """

    @classmethod
    def check_request(cls, request: Request, wait_seconds: float | None) -> None:
        """Check a request without asking a server.

        Args:
            request: What is wanted.
            wait_seconds: How long it may wait; None for no limit.

        Raises:
            InvalidRequest: No backend of this kind could ever grant it.
        """

    @classmethod
    def locate(cls, url: str, settings: Settings, environment: Mapping[str, str]) -> Settings:
        """Add to settings which server a URL means here and now, where it doesn't say that itself.

        Args:
            url: Of such a backend.
            settings: The settings that are the same for all backends.
            environment: The variables that may say so.

        Raises:
            LeaseError: Nothing says so, or what does can't be used.
        """
        return settings

    @classmethod
    def place(cls, url: str, settings: str) -> str:
        """Implements `place_of`."""
        return url

    @classmethod
    def timing(cls, url: str) -> Timing | None:
        """Return how long leases last if the URL says it; None if requests do.

        Raises:
            InvalidRequest: It can't be right.
        """
        return None

    @classmethod
    def claim_key(cls, handle: Handle) -> str:
        """Implements `claim_key_of`."""
        if not cls.remote:
            return handle.id
        if handle.adopted_claim is not None:
            return handle.adopted_claim
        if cls.claims_by_identity:
            return f"{handle.holder_identity}/{handle.acquisition}"
        return handle.key

    @classmethod
    def open(cls, context: Context, state: State, lost: LostListener) -> Backend:
        """Open the backend; no server is asked anything yet.

        Args:
            context: Its URL, and how to come to it.
            state: Where records are, and the embedded pool.
            lost: Told of leases that went away without having been given back.
        """
        return cls(context, state)

    @classmethod
    def open_renewals(cls, context: Context, terms: RenewalTerms) -> Renew:
        """Open what renews leases, for use in a thread of its own.

        Args:
            context: The backend's.
            terms: Of what, and how.

        Raises:
            NotSupported: Leases of this kind aren't renewed by their holder.
        """
        raise lacking(
            f"leases of {context.url} aren't renewed by their holder", has=is_asked_by_holder
        )

    @classmethod
    def open_claim_watch(
        cls, context: Context, *, state_id: str, claim_key: str, fence: int
    ) -> ClaimWatch | None:
        """Open a watch that tells at once when another process changes the claims of a claim key.

        It has a thread of its own. None where leases aren't changed by others, or no server tells.
        """
        return None

    @classmethod
    def open_probe(cls, context: Context) -> Callable[[], None] | None:
        """Open what finds out whether the server works, for use in any thread.

        Returns:
            Raises LeaseError when the server doesn't work, after two seconds at the latest, and
            changes nothing; calls must not overlap. None if the backend has no server, or if the
            server can be asked nothing without leasing.
        """
        return None

    @classmethod
    def pool_types(cls, context: Context, *, seconds: float) -> Sequence[str]:
        """Return the types of the server's pools, for a shell that completes them.

        Args:
            context: The backend's.
            seconds: How long that may take.

        Raises:
            LeaseError: They can't be had in that time.
        """
        return ()

    @classmethod
    def resource_names(
        cls, context: Context, begin: str, types: Collection[str], *, seconds: float
    ) -> Sequence[str]:
        """Return names in the server's pools, for a shell that completes them.

        Args:
            context: The backend's.
            begin: What they begin with; of very many such names, the first will do.
            types: Of the pools that they are to be in; none of them for any.
            seconds: How long that may take.

        Raises:
            LeaseError: They can't be had in that time.
        """
        return ()

    @classmethod
    def open_to_look(cls, context: Context, *, seconds: float) -> Sides | None:
        """Open a server's pools to read them for shell completion; None if that can't be done.

        Args:
            context: The backend's.
            seconds: How long each request may take.
        """
        return None

    @classmethod
    def status(cls, context: Context, pool_type: str | None) -> object | None:
        """Ask the server for the state of its pools, which leasectl can read but not change.

        Args:
            context: The backend's.
            pool_type: The type to report on; None for all types.

        Returns:
            What `leasectl.pools.overview_json` reads; None if the backend doesn't offer this.

        Raises:
            NotFound: The server has no such type.
            NotSupported: The server doesn't report on its pools.
            BackendUnreachable: The server doesn't answer, or refuses to.
        """
        return None

    @classmethod
    def counts(
        cls, context: Context, pool_type: str, *, interrupts: Sequence[Interrupt] = ()
    ) -> TypeCounts:
        """Ask the server how many resources of a type there are, and who has how many.

        Args:
            context: The backend's.
            pool_type: Which type.
            interrupts: Whichever comes first ends the request, with the error that it raises.

        Raises:
            NotFound: The server has no such type.
            BackendUnreachable: The server doesn't answer, or refuses to.
        """
        raise no_pools(context.url)

    # What an opened backend does.

    @property
    def sides(self) -> Sides:
        raise no_pools(self.url)

    @property
    def events(self) -> EventLog:
        """What happened in its pools; if they aren't its own, to the handles of this directory."""
        from leasectl.state.event_log import StateEventLog  # only here: few commands read it

        return StateEventLog(self._state, backend=self.url)

    def atomic(self) -> AbstractContextManager[object]:
        """Steps inside happen at once, together with the handle's record."""
        return nullcontext()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        """Wait not much longer than that for what a server is asked inside; None: as usual."""
        return nullcontext()

    def close(self) -> None:
        """End the connections and threads that nothing uses now."""

    def acquire(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> None:
        """Get all that the claimant's request asks for, or nothing; the journal is told of it.

        Raises:
            NoLease: Not before the deadline.
            Cancelled: The request was withdrawn.
            NotFound: No such type or resource.
            InvalidRequest: It can never be had.
        """
        raise NotImplementedError

    def turn(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> Turn:
        """What `acquire` does, for a process that waits for many at once.

        Raises:
            NotSupported: The backend can only block.
        """
        raise not_served(self.url)

    def withdraw(self, claim_key: str, why: str = "") -> None:
        """Take the request that a claim key finds out of the queue, if it is in one.

        A backend without a queue of its own does nothing here: the waiting process sees in the
        `Journal` that its request was withdrawn, and gives up.

        Args:
            claim_key: What finds it.
            why: For people, for the record of events.
        """

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> Iterable[str]:
        """Give names back, as far as the claim key still finds them. Twice is once.

        A remote backend yields each as it is done, and raises in the end if one couldn't be. Its
        claim key is the journal's key. No names are all that the key may have been granted, and
        what it had that was ended by force.

        Args:
            claim_key: What finds them.
            names: Which.
            by: Who ends them, for the record of events.
        """
        raise NotImplementedError

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        """Renew what a claim key finds; returns the names that it still holds.

        Args:
            claim_key: What finds it.
            names: Which those are, as far as is known; some servers can't tell.
            ttl_seconds: The ttl from now on, where there is one; None for that which it has.
        """
        raise NotImplementedError


Kind = type[Backend]
# By scheme, in the order in which help tells of them; each loads the module of its class.
LOADERS: dict[str, Callable[[], Kind]] = {}


def register(load: Callable[[], Kind], *schemes: str) -> None:
    """Add a backend to the registry.

    Args:
        load: Imports and returns its class.
        schemes: What its URLs begin with, up to the ":".
    """
    LOADERS.update(dict.fromkeys(schemes, load))


def all_kinds() -> list[Kind]:
    """Load and return every class, in the order in which help tells of them."""
    return list(dict.fromkeys(load() for load in LOADERS.values()))


def kind_of(url: str) -> Kind:
    """Return the class of a URL's scheme; `check_url` looks at the rest of the URL.

    Raises:
        InvalidRequest: No backend is registered for the scheme.
    """
    kind = _find(url)
    if kind is None:
        raise no_backend(url)
    return kind


def check_url(url: str) -> str:
    """Return the URL of a backend there is, or raise InvalidRequest."""
    kind_of(url).check_url(url)
    return url


def kind_of_handle(handle: Handle) -> Kind:
    """Return the class of a record's backend.

    A kind that only another version knows, which used this state directory, has nothing that could
    be asked here, and takes no part in transactions of ours.
    """
    return _find(handle.backend) or Backend


@lru_cache(maxsize=64)  # thousands of handles may be at few
def place_of(url: str, settings: str) -> str:
    """Return a name for where leases are; two URLs for the same place have the same name.

    Args:
        url: Of the backend.
        settings: How to talk to it, as `encode_settings` wrote it.

    Raises:
        CorruptState: They can't be read.
    """
    return (_find(url) or Backend).place(url, settings)


def claim_key_of(handle: Handle) -> str:
    """Return the key by which the backend finds a handle's claims; empty if it isn't known.

    Where a claim and its record don't change together, the key has the number of the acquisition,
    so that a late request for one acquisition never meets the next.
    """
    return kind_of_handle(handle).claim_key(handle)


def release_key_of(handle: Handle) -> str:
    """Return a key that two releases of a name share if they could end the same lease.

    On a server that releases by name alone, any handle's release ends the lease. On a server that
    checks claims, only a release by the acquisition that holds it does.
    """
    by_name = kind_of_handle(handle).releases_by_name
    return handle.backend if by_name else f"{handle.backend} {claim_key_of(handle)}"


def renew_seconds(handle: Handle) -> float:
    """Return the seconds between renewals of a handle's leases.

    They are short enough that a renewal can fail and be repeated before the ttl is over.
    """
    assert handle.request.ttl_seconds is not None
    third = handle.request.ttl_seconds / 3
    known = kind_of_handle(handle).timing(handle.backend)
    return third if known is None else min(third, known.renew_seconds)


def has_pools(kind: Kind) -> bool:
    """Return whether a kind has pools of its own."""
    return kind.has_pools


def is_served(kind: Kind) -> bool:
    """Return whether `serve` can lease from a kind."""
    return kind.can_be_served


def is_asked_by_holder(kind: Kind) -> bool:
    """Return whether a holder renews a kind's leases, and asks by name and without waiting."""
    return kind.can_be_served or kind.has_pools


def prefixes(conjunction: str, *, has: Callable[[Kind], bool] = has_pools) -> str:
    """Name the kinds with an ability by what their URLs begin with: ``local: and etcd://``."""
    return either((kind.prefix for kind in all_kinds() if has(kind)), conjunction)


def lacking(problem: str, *, has: Callable[[Kind], bool] = has_pools) -> NotSupported:
    """Return the error for an ability that a backend lacks; it lists the backends that have it.

    Args:
        problem: What can't be done.
        has: Whether a kind has the ability.
    """
    return NotSupported(f"{problem}; {prefixes('and', has=has)} can do it")


def no_pools(url: str) -> NotSupported:
    """The error for a backend without pools of its own."""
    theirs = _find(url)
    why = theirs.pools_are if theirs is not None and theirs.pools_are else "has no pools"
    return choosing(f"this command is not supported by {url}, which {why}")


def not_served(url: str) -> NotSupported:
    """The error for a backend that `serve` can't lease from."""
    return choosing(f"leasectl serve can't serve leases of {url}", has=is_served)


def only_ttl(url: str, seconds: float) -> NotSupported:
    """The error for a ttl where all leases have the same."""
    return NotSupported(
        f"every lease of {url} lasts {format_duration(seconds)} after its last "
        f"renewal; use --ttl {format_duration(seconds)}, or leave --ttl out"
    )


def choosing(problem: str, *, has: Callable[[Kind], bool] = has_pools) -> NotSupported:
    """The same as `lacking`, where another backend has to be chosen for the whole command."""
    choices = either(kind.choice for kind in all_kinds() if has(kind))
    return NotSupported(f"{problem}; choose {choices} with --backend")


def no_backend(url: str) -> InvalidRequest:
    """Return the error for a URL without a known scheme, with a suggestion."""
    scheme, colon, rest = url.partition("://")
    near = nearest(scheme.lower(), list(LOADERS))
    if not colon and url.rpartition(":")[2].isdecimal():
        meant = f"; did you mean etcd://{url} or http://{url}?"
    elif colon and near and near != scheme:
        meant = f'; did you mean "{printable_url(f"{near}://{rest}")}"?'
    elif f"{url}:" in {kind.choice for kind in all_kinds()}:
        meant = f'; did you mean "{url}:"?'
    else:
        # First those that are the same everywhere.
        kinds = sorted(all_kinds(), key=lambda kind: kind.takes_address)
        choices = either(kind.choice for kind in kinds)
        meant = f"; choose {choices} with --backend or LEASECTL_BACKEND"
    return InvalidRequest(f'unknown backend "{printable_url(url)}"{meant}')


def check_port(url: str, port: str | None, *, like: str) -> None:
    """Refuse a port that no server can have: one would wait for it, as for one that is away.

    Raises:
        InvalidRequest: There is no such port.
    """
    if port is not None and not 1 <= int(port) <= 65535:
        raise InvalidRequest(
            f'"{printable_url(url)}" has port {port}, which is not between 1 and 65535; write it '
            f"like {like}"
        )


def either(words: Iterable[str], conjunction: str = "or") -> str:
    """Join words as a sentence does: ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def pools_of(request: Request, *, quote: str = "") -> str:
    """Return the pools of a request as a sentence names them: ``a or b``, or ``a and b``."""
    quoted = (f"{quote}{each}{quote}" for each in request.types)
    return either(quoted, "and" if request.needs_all else "or")


def _find(url: str) -> Kind | None:
    scheme, colon, rest = url.partition(":")
    load = LOADERS.get(scheme)
    if load is None or not colon:
        return None
    kind = load()
    return kind if not rest or kind.takes_address else None
