"""A row for each URL scheme, with what such a backend can do.

A new backend is a module as `Opener` has it, and a row here: help, errors, completion, `doctor` and
the verbs know it by the row. Rows name modules rather than import them, for most commands use one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leasectl.errors import InvalidRequest, NotSupported
from leasectl.model import Handle
from leasectl.text.durations import format_duration
from leasectl.text.suggestions import nearest
from leasectl.text.wording import printable_url

# The embedded pool's URL, which is also the default.
LOCAL = "local:"


class Kind(NamedTuple):
    """What is true of every backend of one kind.

    Args:
        schemes: What its URLs begin with, up to the ":".
        title: What it is.
        example: A URL of it, for help; one that ends in ":" is the only one.
        choice: How to choose it, for errors.
        help: The same, for help.
        opener: The module that opens it, an `Opener`.
        remote: Its leases live on a server; else they change in one transaction with the records.
        has_pools: It has pools of its own, which can be shown and changed.
        default_ttl_seconds: The ttl of a request that names none; None: it doesn't expire.
        timed_by: The module that tells from an address how long its leases last, and how often they
            are renewed, a `TimingSource`; None where requests say that, and they are renewed three
            times a ttl.
        claims_by_identity: A claim key is the holder's identity, with the acquisition: its server
            shows it to people.
        releases_by_name: A release by bare name hits whoever holds it; else only the claim that is
            named along with it.
        outlives_steps: What one step of a job takes, a later one may give back, as the server holds
            it meanwhile: the end of a step must not release it there.
        pools_are: Of one without pools of its own, where they are, for errors; empty for nowhere.
        grants_nothing: Every request succeeds, and nothing is leased.
        claim_server: The module that asks its server beside a `Backend`, a `ClaimServer`, and with
            pools of its own a `PoolServer`; None where there is no server, or it is asked for
            nothing else.
        counted_by: The module that asks its server how many resources of a type there are, and who
            has how many, a `CountServer`; None where more than that is known.
        status_by: The module that asks its server how the pools behind it are, a `StatusServer`;
            None where it has pools of its own, or can't be asked.
        examined_by: The module with the checks that `doctor` makes of it; None for none.
        located_by: The module that finds in the environment where its server is, or as whom we come
            to it, a `Locator`; None where its URLs and the usual settings say so.
        placed_by: The module that tells where its leases are by a URL and the settings beside it,
            a `PlaceSource`; None where the URL alone says that.
        is_cluster: Its URLs name a namespace in a cluster of Kubernetes, which has nodes.
    """

    schemes: tuple[str, ...]
    title: str
    example: str
    choice: str
    help: str
    opener: str
    remote: bool
    has_pools: bool
    default_ttl_seconds: float | None = None
    timed_by: str | None = None
    claims_by_identity: bool = False
    releases_by_name: bool = False
    outlives_steps: bool = False
    pools_are: str = ""
    grants_nothing: bool = False
    claim_server: str | None = None
    counted_by: str | None = None
    status_by: str | None = None
    examined_by: str | None = None
    located_by: str | None = None
    placed_by: str | None = None
    is_cluster: bool = False

    @property
    def can_be_served(self) -> bool:
        """Whether its leases can be handed on: who waits is known here, and how many there are."""
        return self.has_pools or self.counted_by is not None

    @property
    def takes_address(self) -> bool:
        """Whether its URLs say where a server is."""
        return not self.example.endswith(":")

    @property
    def prefix(self) -> str:
        """What its URLs begin with, as texts name it: ``local:``, ``etcd://``."""
        head, slashes, _ = self.example.partition("//")
        return head + slashes


# In the order in which help tells of them.
KINDS: tuple[Kind, ...] = (
    Kind(
        schemes=("local",),
        title="the embedded pool",
        example=LOCAL,
        choice=LOCAL,
        help=LOCAL,
        opener="leasectl.backends.local",
        remote=False,
        has_pools=True,
    ),
    Kind(
        schemes=("etcd", "etcds"),
        title="etcd",
        example="etcd://HOST:PORT,.../PREFIX",
        choice="etcd://HOST:PORT",
        help="etcd://HOST:PORT,.../PREFIX (over TLS etcds://)",
        opener="leasectl.backends.etcd",
        remote=True,
        has_pools=True,
        default_ttl_seconds=60.0,
        claim_server="leasectl.backends.etcd",
        examined_by="leasectl.doctor.etcd",
    ),
    Kind(
        schemes=("kubernetes",),
        title="Kubernetes",
        example="kubernetes://NAMESPACE",
        choice="kubernetes://NAMESPACE",
        help="kubernetes://[NAMESPACE][?context=NAME&kubeconfig=PATH]",
        opener="leasectl.backends.kubernetes",
        remote=True,
        has_pools=True,
        default_ttl_seconds=60.0,
        claim_server="leasectl.backends.kubernetes",
        examined_by="leasectl.doctor.kubernetes",
        located_by="leasectl.backends.kubernetes",
        placed_by="leasectl.backends.kubernetes",
        is_cluster=True,
    ),
    Kind(
        schemes=("http", "https"),
        title="a lease proxy",
        example="http://...",
        choice="the http:// address of a lease proxy",
        help="the http:// address of a lease proxy",
        opener="leasectl.backends.proxy.opening",
        remote=True,
        has_pools=False,
        releases_by_name=True,
        outlives_steps=True,
        status_by="leasectl.backends.proxy.status",
        examined_by="leasectl.doctor.lease_proxy",
    ),
    Kind(
        schemes=("boskos+http", "boskos+https"),
        title="Boskos",
        example="boskos+http://HOST",
        choice="boskos+http://HOST",
        help="boskos+http://HOST[?expire=30m] (over TLS boskos+https://)",
        opener="leasectl.backends.boskos.opening",
        remote=True,
        has_pools=False,
        default_ttl_seconds=1800.0,
        timed_by="leasectl.backends.boskos.opening",
        claims_by_identity=True,
        pools_are="keeps its pools itself, as the file says that its --config names (as a rule a "
        "ConfigMap): change them there, and see them with: leasectl status POOL",
        claim_server="leasectl.backends.boskos.opening",
        counted_by="leasectl.backends.boskos.status",
        examined_by="leasectl.doctor.boskos",
        located_by="leasectl.backends.boskos.opening",
    ),
    Kind(
        schemes=("none",),
        title="a dry run",
        example="none:",
        choice="none:",
        help="none: (no leases, a dry run)",
        opener="leasectl.backends.dry_run",
        remote=False,
        has_pools=False,
        grants_nothing=True,
    ),
)

# Of a record that was made by a version which has more kinds: only that can do anything about it.
_OF_ANOTHER_VERSION = Kind(
    schemes=(),
    title="a backend of another version",
    example="",
    choice="",
    help="",
    opener="",
    remote=True,
    has_pools=False,
)


def kind_of(url: str) -> Kind:
    """Tell of what kind a backend is; whether the rest of its URL is right, `check_url` tells.

    Raises:
        InvalidRequest: There is no such kind.
    """
    kind = _find(url)
    if kind is None:
        raise no_backend(url)
    return kind


def kind_of_handle(handle: Handle) -> Kind:
    """Tell of what kind the backend of a record is.

    A kind that only another version knows, which used this state directory, has nothing that could
    be asked here, and takes no part in transactions of ours.
    """
    return _find(handle.backend) or _OF_ANOTHER_VERSION


def claim_key_of(handle: Handle) -> str:
    """What the backend finds a handle's claims by; empty when nobody knows whose they are.

    Where a claim and its record don't change together it says which acquisition, so that what
    is late for one never meets the next.
    """
    kind = kind_of_handle(handle)
    if not kind.remote:
        return handle.id
    if handle.adopted_claim is not None:
        return handle.adopted_claim
    if kind.claims_by_identity:
        return f"{handle.holder_identity}/{handle.acquisition}"
    return handle.key


def release_key_of(handle: Handle) -> str:
    """What releases of one name have in common that could meet the same lease.

    A server that releases by name alone can be told so by any handle; one that heeds claims only
    by the acquisition that holds it.
    """
    by_name = kind_of_handle(handle).releases_by_name
    return handle.backend if by_name else f"{handle.backend} {claim_key_of(handle)}"


def no_backend(url: str) -> InvalidRequest:
    """Return the error for a URL without a known scheme, with a suggestion."""
    scheme, colon, rest = url.partition("://")
    near = nearest(scheme.lower(), [each for kind in KINDS for each in kind.schemes])
    if not colon and url.rpartition(":")[2].isdecimal():
        meant = f"; did you mean etcd://{url} or http://{url}?"
    elif colon and near and near != scheme:
        meant = f'; did you mean "{printable_url(f"{near}://{rest}")}"?'
    else:
        # First those that are the same everywhere.
        choices = [kind.choice for kind in sorted(KINDS, key=lambda kind: kind.takes_address)]
        meant = f"; choose {either(choices)} with --backend or LEASECTL_BACKEND"
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


def no_pools(url: str) -> NotSupported:
    """The refusal of a backend without pools of its own."""
    theirs = _find(url)
    why = theirs.pools_are if theirs is not None and theirs.pools_are else "has no pools"
    return NotSupported(f"backend {url} {why}; choose {_with_pools()} with --backend")


def not_served(url: str) -> NotSupported:
    """The refusal to hand on the leases of a backend."""
    others = either(kind.choice for kind in KINDS if kind.can_be_served)
    return NotSupported(
        f"leasectl serve can't serve leases of {url}; choose {others} with --backend"
    )


def one_type_only(url: str) -> NotSupported:
    """The refusal to wait for several types at once, where a request is for one."""
    return NotSupported(
        f"{url} takes one pool per request; name one -t, or choose {_with_pools()} with --backend"
    )


def only_ttl(url: str, seconds: float) -> NotSupported:
    """The refusal of a ttl where all leases have the same."""
    return NotSupported(
        f"every lease of {url} lasts {format_duration(seconds)} after its last "
        f"renewal; use --ttl {format_duration(seconds)}, or leave --ttl out"
    )


def pool_prefixes(conjunction: str) -> str:
    """The kinds with pools of their own, by what their URLs begin with: ``local: and etcd://``."""
    return either((kind.prefix for kind in KINDS if kind.has_pools), conjunction)


def renewed_prefixes(conjunction: str) -> str:
    """The kinds with leases that a holder renews, asks for by name and without waiting."""
    return either((kind.prefix for kind in KINDS if kind.can_be_served), conjunction)


def served_prefixes(conjunction: str) -> str:
    """The kinds whose leases can be handed on, by what their URLs begin with."""
    return either((kind.prefix for kind in KINDS if kind.can_be_served), conjunction)


def either(words: Iterable[str], conjunction: str = "or") -> str:
    """Join words as a sentence does: ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def _with_pools() -> str:
    return either(kind.choice for kind in KINDS if kind.has_pools)


def _find(url: str) -> Kind | None:
    scheme, colon, rest = url.partition(":")
    for kind in KINDS:
        if scheme in kind.schemes:
            return kind if colon and (not rest or kind.takes_address) else None
    return None
