"""``kubernetes://NAMESPACE``: pools in a Kubernetes namespace.

What asks a cluster is imported where it is asked: an address is looked at without that, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from leasectl.backends.pool.backend import PoolBackend
from leasectl.backends.servers import ClosingClaimWatch, ClosingRenewals
from leasectl.engines.kubernetes.api.address import leases, parse_kubernetes_url
from leasectl.engines.kubernetes.api.choice import choose, encode_choice, parse_choice
from leasectl.engines.kubernetes.api.requests import LONGEST_BUSY_SECONDS, Api
from leasectl.engines.kubernetes.names import object_of_pool
from leasectl.engines.kubernetes.objects import KubernetesObjects
from leasectl.engines.kubernetes.opening import open_kubernetes
from leasectl.engines.kubernetes.own_record import OwnRecord
from leasectl.engines.kubernetes.posting import Posting
from leasectl.errors import CorruptState, InvalidRequest
from leasectl.http.settings import parse_settings
from leasectl.system import signals

if TYPE_CHECKING:
    from leasectl.backends.kinds import Context
    from leasectl.backends.servers import ClaimWatch, Renew, RenewalTerms
    from leasectl.engines.contract import LostListener
    from leasectl.engines.kubernetes.api.choice import ClusterChoice
    from leasectl.engines.kubernetes.opening import Opened
    from leasectl.http.settings import Settings
    from leasectl.model import Request
    from leasectl.state.directory import State

# What any request may take in all, unless somebody has said how long a release may.
_REQUEST_SECONDS = 10.0
_ATTEMPT_SECONDS = 4.0
_PROBE_SECONDS = 2.0
# Each is a request; a pool is seldom that large.
_MOST_AT_ONCE = 100


class KubernetesBackend(PoolBackend):
    """Pools in a namespace of a Kubernetes cluster."""

    title = "Kubernetes"
    prefix = "kubernetes://"
    choice = "kubernetes://NAMESPACE"
    help = "kubernetes://[NAMESPACE][?context=NAME&kubeconfig=PATH]"
    remote = True
    default_ttl_seconds = 60.0
    is_cluster = True

    @classmethod
    def check_url(cls, url: str) -> None:
        parse_kubernetes_url(url)

    @classmethod
    def check_request(cls, request: Request, wait_seconds: float | None) -> None:
        """Refuse a request for more than is claimed one after the other."""
        if request.total > _MOST_AT_ONCE:
            raise InvalidRequest(
                f"--count {request.count}: Kubernetes grants at most {_MOST_AT_ONCE} at "
                "once, because each needs a request"
            )

    @classmethod
    def locate(cls, url: str, settings: Settings, environment: Mapping[str, str]) -> Settings:
        """Add the cluster and the user, without secrets."""
        choice = choose(parse_kubernetes_url(url), environment)
        return settings._replace(cluster=encode_choice(choice))

    @classmethod
    def place(cls, url: str, settings: str) -> str:
        """Return a namespace in a cluster, whatever context names it."""
        parsed = parse_settings(settings)
        if parsed.cluster is None:
            return url
        choice = _choice(parsed)
        return f"{choice.namespace} at {choice.server}"

    @classmethod
    def open(cls, context: Context, state: State, lost: LostListener) -> KubernetesBackend:
        choice = _choice(context.settings)
        if choice.warning:
            context.warn(choice.warning)
        seconds = context.release_seconds
        api = Api(
            choice,
            clock=context.clock,
            deadline_seconds=_REQUEST_SECONDS if seconds is None else seconds,
            busy_seconds=LONGEST_BUSY_SECONDS if seconds is None else seconds,
            rest_seconds=context.rest_seconds,
            pause=signals.pause,
        )
        place = f"{choice.server} {choice.namespace}"
        which = hashlib.sha256(place.encode()).hexdigest()[:16]
        posting = Posting(
            api,
            choice.namespace,
            refused_path=state.path(f"events-refused-{which}"),
            warn=context.warn,
            clock=context.clock,
        )
        opened = open_kubernetes(
            api,
            choice.namespace,
            state_id=state.state_id(),
            warn=context.warn,
            observed_path=state.path(f"observed-{which}"),
            lost=lost,
            clock=context.clock,
            caller=context.caller.identity,
            own=OwnRecord(state, which),
            posting=posting,
        )
        return cls(
            context.url,
            opened.engine,
            opened,
            clock=context.clock,
            limited=api.limited,
            close=api.close,
            release_seconds=seconds,
        )

    @classmethod
    def open_renewals(cls, context: Context, terms: RenewalTerms) -> Renew:
        """Implements `Backend`. A try takes at most a sixth of the ttl."""
        choice = _choice(context.settings)
        api = Api(
            choice,
            clock=context.clock,
            deadline_seconds=terms.ttl_seconds / 3,
            attempt_seconds=min(_ATTEMPT_SECONDS, terms.ttl_seconds / 6),
        )
        opened = open_kubernetes(
            api,
            choice.namespace,
            state_id=terms.state_id,
            clock=context.clock,
            posting=Posting(api, choice.namespace, clock=context.clock),
        )
        opened.context.renewals.noted = terms.noted
        opened.context.renewals.put_off = terms.put_off
        opened.context.renewals.seconds = terms.ttl_seconds / 3
        return ClosingRenewals(lambda key, names: opened.engine.renew(key), api.close)

    @classmethod
    def open_claim_watch(
        cls, context: Context, *, state_id: str, claim_key: str, fence: int
    ) -> ClaimWatch:
        from leasectl.engines.cluster.notes import ClusterClaimWatch

        choice = _choice(context.settings)
        api = Api(choice, clock=context.clock, deadline_seconds=_REQUEST_SECONDS)
        objects = KubernetesObjects(api, leases(choice.namespace))
        watch = ClusterClaimWatch(objects, f"{state_id}/{claim_key}")
        return ClosingClaimWatch(watch, api.close)

    @classmethod
    def open_probe(cls, context: Context) -> Callable[[], None]:
        choice = _choice(context.settings)
        api = Api(choice, clock=context.clock, deadline_seconds=_PROBE_SECONDS)
        objects = KubernetesObjects(api, leases(choice.namespace))

        def probe() -> None:
            objects.get(object_of_pool("probe"))  # whether that is there or not

        return probe

    @classmethod
    def pool_types(cls, context: Context, *, seconds: float) -> list[str]:
        return cls.open_to_look(context, seconds=seconds).context.pool_types()

    @classmethod
    def resource_names(
        cls, context: Context, begin: str, types: Collection[str], *, seconds: float
    ) -> list[str]:
        return cls.open_to_look(context, seconds=seconds).context.resource_names(begin, types)

    @classmethod
    def open_to_look(cls, context: Context, *, seconds: float) -> Opened:
        choice = _choice(context.settings)
        api = Api(choice, clock=context.clock, deadline_seconds=seconds)
        return open_kubernetes(
            api,
            choice.namespace,
            state_id="",
            clock=context.clock,
            only_looks=True,
        )


def _choice(settings: Settings) -> ClusterChoice:
    if settings.cluster is None:
        raise CorruptState(
            "no Kubernetes cluster is chosen; name its kubeconfig in LEASECTL_KUBECONFIG"
        )
    return parse_choice(settings.cluster)
