"""``kubernetes://NAMESPACE``: pools in a Kubernetes namespace.

What asks a cluster is imported where it is asked: an address is looked at without that, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from leasectl.backends.contract import Backend, Opening
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.kubernetes.api.address import parse_kubernetes_url
from leasectl.engines.kubernetes.api.asking import LONGEST_BUSY_SECONDS
from leasectl.engines.kubernetes.api.choice import choose, encode_choice, parse_choice
from leasectl.engines.kubernetes.api.collection import leases
from leasectl.engines.kubernetes.api.login import open_api
from leasectl.engines.kubernetes.names import object_of_pool
from leasectl.engines.kubernetes.objects import KubernetesObjects
from leasectl.engines.kubernetes.opening import open_kubernetes
from leasectl.engines.kubernetes.own_record import OwnRecord
from leasectl.engines.kubernetes.posting import Posting
from leasectl.errors import CorruptState, InvalidRequest
from leasectl.http.settings import Settings, parse_settings
from leasectl.model import Request
from leasectl.system import signals
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.backends.servers import ClaimWatch, Renew
    from leasectl.engines.kubernetes.api.choice import ClusterChoice
    from leasectl.engines.kubernetes.opening import Opened
    from leasectl.engines.notes import NoteListener
    from leasectl.engines.pool_admin import Sides

# What any request may take in all, unless somebody has said how long a release may.
_REQUEST_SECONDS = 10.0
_ATTEMPT_SECONDS = 4.0
_PROBE_SECONDS = 2.0
# Each is a request; a pool is seldom that large.
_MOST_AT_ONCE = 100


def check_url(url: str) -> None:
    """Raise InvalidRequest unless it is the URL of a namespace."""
    parse_kubernetes_url(url)


def check_request(request: Request, wait_seconds: float | None) -> None:
    """Raise InvalidRequest when it asks for more than is claimed one after the other."""
    if request.count > _MOST_AT_ONCE:
        raise InvalidRequest(
            f"--count {request.count}: Kubernetes grants at most {_MOST_AT_ONCE} at "
            "once, because each needs a request"
        )


def locate(url: str, settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Implements `Locator`: the cluster and the user, without secrets."""
    choice = choose(parse_kubernetes_url(url), environment)
    return settings._replace(cluster=encode_choice(choice))


def place(url: str, settings: Settings) -> str:
    """Implements `PlaceSource`: a namespace in a cluster, whatever context names it."""
    if settings.cluster is None:
        return url
    choice = _choice(settings)
    return f"{choice.namespace} at {choice.server}"


def open_backend(url: str, opening: Opening) -> Backend:
    """Open the pools in a namespace; nothing is asked of its cluster yet."""
    choice = _choice(parse_settings(opening.settings))
    if choice.warning:
        opening.warn(choice.warning)
    seconds = opening.release_seconds
    api = open_api(
        choice,
        clock=opening.clock,
        deadline_seconds=_REQUEST_SECONDS if seconds is None else seconds,
        busy_seconds=LONGEST_BUSY_SECONDS if seconds is None else seconds,
        rest_seconds=opening.rest_seconds,
        pause=signals.pause,
    )
    which = hashlib.sha256(f"{choice.server} {choice.namespace}".encode()).hexdigest()[:16]
    posting = Posting(
        api,
        choice.namespace,
        refused_path=opening.state.path(f"events-refused-{which}"),
        warn=opening.warn,
        clock=opening.clock,
    )
    opened = open_kubernetes(
        api,
        choice.namespace,
        state_id=opening.state.state_id(),
        warn=opening.warn,
        observed_path=opening.state.path(f"observed-{which}"),
        lost=opening.lost,
        clock=opening.clock,
        caller=opening.caller,
        own=OwnRecord(opening.state, which),
        posting=posting,
    )
    return PoolBackend(
        url,
        opened.engine,
        opened,
        clock=opening.clock,
        remote=True,
        limited=api.limited,
        release_seconds=seconds,
    )


def open_renewals(
    url: str,
    *,
    state_id: str,
    settings: Settings,
    ttl_seconds: float,
    noted: NoteListener,
    put_off: Callable[[], object] | None,
    clock: Clock,
) -> Renew:
    """Implements `ClaimServer`. A try takes at most a sixth of the ttl."""
    choice = _choice(settings)
    api = open_api(
        choice,
        clock=clock,
        deadline_seconds=ttl_seconds / 3,
        attempt_seconds=min(_ATTEMPT_SECONDS, ttl_seconds / 6),
    )
    opened = open_kubernetes(
        api,
        choice.namespace,
        state_id=state_id,
        lost=lambda claim_key, names: None,
        clock=clock,
        posting=Posting(api, choice.namespace, clock=clock),
    )
    opened.engine.renewals.noted = noted
    opened.engine.renewals.put_off = put_off
    opened.engine.renewals.seconds = ttl_seconds / 3
    return lambda claim_key, names: opened.engine.renew(claim_key)


def open_claim_watch(
    url: str, *, state_id: str, settings: Settings, claim_key: str, fence: int, clock: Clock
) -> ClaimWatch:
    """Implements `ClaimServer`."""
    from leasectl.engines.cluster.claim_watch import ClusterClaimWatch

    choice = _choice(settings)
    api = open_api(choice, clock=clock, deadline_seconds=_REQUEST_SECONDS)
    objects = KubernetesObjects(api, leases(choice.namespace))
    return ClusterClaimWatch(objects, f"{state_id}/{claim_key}")


def open_probe(url: str, settings: Settings, *, clock: Clock) -> Callable[[], None]:
    """Implements `ClaimServer`."""
    choice = _choice(settings)
    api = open_api(choice, clock=clock, deadline_seconds=_PROBE_SECONDS)
    objects = KubernetesObjects(api, leases(choice.namespace))

    def probe() -> None:
        objects.get(object_of_pool("probe"))  # whether that is there or not

    return probe


def pool_types(url: str, settings: Settings, *, seconds: float, clock: Clock) -> list[str]:
    """Implements `PoolServer`."""
    from leasectl.engines.cluster.listing import pool_types as types_in

    return types_in(_open_briefly(settings, seconds=seconds, clock=clock).context)


def resource_names(
    url: str,
    settings: Settings,
    begin: str,
    types: Collection[str],
    *,
    seconds: float,
    clock: Clock,
) -> list[str]:
    """Implements `PoolServer`."""
    from leasectl.engines.cluster.listing import resource_names as names_in

    return names_in(_open_briefly(settings, seconds=seconds, clock=clock).context, begin, types)


def open_to_look(url: str, settings: Settings, *, seconds: float, clock: Clock) -> Sides:
    """Implements `PoolServer`."""
    return _open_briefly(settings, seconds=seconds, clock=clock)


def _open_briefly(settings: Settings, *, seconds: float, clock: Clock) -> Opened:
    """Open a namespace for a short read, such as shell completion."""
    choice = _choice(settings)
    api = open_api(choice, clock=clock, deadline_seconds=seconds)
    return open_kubernetes(
        api,
        choice.namespace,
        state_id="",
        lost=lambda claim_key, names: None,
        clock=clock,
        only_looks=True,
    )


def _choice(settings: Settings) -> ClusterChoice:
    if settings.cluster is None:
        raise CorruptState(
            "nothing says which cluster of Kubernetes is meant; name its kubeconfig in "
            "LEASECTL_KUBECONFIG"
        )
    return parse_choice(settings.cluster)
