"""``etcd://``: pools in etcd.

What asks a cluster is imported where it is asked: an address is looked at without that, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from leasectl.backends.pool.backend import PoolBackend
from leasectl.backends.servers import ClosingClaimWatch, ClosingRenewals
from leasectl.engines.etcd.address import parse_etcd_url
from leasectl.engines.etcd.gateway import ATTEMPT_SECONDS, Gateway
from leasectl.engines.etcd.opening import open_etcd, probe
from leasectl.errors import InvalidRequest
from leasectl.state.event import Kept
from leasectl.system import signals

if TYPE_CHECKING:
    from leasectl.backends.kinds import Context
    from leasectl.backends.servers import ClaimWatch, Renew, RenewalTerms
    from leasectl.engines.contract import LostListener
    from leasectl.engines.etcd.opening import Opened
    from leasectl.model import Request
    from leasectl.state.directory import State

# What any request may take in all, unless somebody has said how long a release may.
_REQUEST_SECONDS = 10.0
_PROBE_SECONDS = 2.0
# So that with a member that is down there is time for another.
_ONE_MEMBERS_SHARE = 0.4
# A transaction takes 128. A claim has two for each resource and up to five for each pool.
_MOST_OPERATIONS = 125


class EtcdBackend(PoolBackend):
    """Pools below a prefix in an etcd cluster."""

    title = "etcd"
    prefix = "etcd://"
    choice = "etcd://HOST:PORT"
    help = "etcd://HOST:PORT,.../PREFIX (over TLS etcds://)"
    remote = True
    default_ttl_seconds = 60.0

    @classmethod
    def check_url(cls, url: str) -> None:
        parse_etcd_url(url)

    @classmethod
    def check_request(cls, request: Request, wait_seconds: float | None) -> None:
        """Refuse a request for more than one transaction can claim."""
        pools = len(request.types) if request.needs_all else 1
        most = (_MOST_OPERATIONS - 5 * pools) // 2
        if request.total > most:
            of_each = f" of each of {pools} pools" if pools > 1 else ""
            raise InvalidRequest(
                f"--count {request.count}{of_each}: etcd grants at most {most} at once, "
                "because a transaction has at most 128 operations"
            )

    @classmethod
    def open(cls, context: Context, state: State, lost: LostListener) -> EtcdBackend:
        seconds = context.release_seconds
        gateway = _open_gateway(
            context,
            deadline_seconds=_REQUEST_SECONDS if seconds is None else seconds,
            rest_seconds=context.rest_seconds,
            pause=signals.pause,
        )
        which = hashlib.sha256(context.url.encode()).hexdigest()[:16]
        opened = open_etcd(
            gateway,
            state_id=state.state_id(),
            observed_path=state.path(f"observed-{which}"),
            lost=lost,
            warn=context.warn,
            clock=context.clock,
            caller=context.caller.identity,
            kept=_kept(state),
        )
        return cls(
            context.url,
            opened.engine,
            opened,
            clock=context.clock,
            limited=gateway.limited,
            close=gateway.close,
            release_seconds=seconds,
        )

    @classmethod
    def open_renewals(cls, context: Context, terms: RenewalTerms) -> Renew:
        """Implements `Backend`. A try at one member takes at most a sixth of the ttl."""
        gateway = _open_gateway(
            context,
            deadline_seconds=terms.ttl_seconds / 3,
            attempt_seconds=min(ATTEMPT_SECONDS, terms.ttl_seconds / 6),
        )
        opened = open_etcd(gateway, state_id=terms.state_id, clock=context.clock)
        opened.context.renewals.noted = terms.noted
        return ClosingRenewals(lambda key, names: opened.engine.renew(key), gateway.close)

    @classmethod
    def open_claim_watch(
        cls, context: Context, *, state_id: str, claim_key: str, fence: int
    ) -> ClaimWatch:
        from leasectl.engines.cluster.notes import ClusterClaimWatch

        gateway = _open_gateway(context)
        opened = open_etcd(gateway, state_id=state_id, clock=context.clock)
        watch = ClusterClaimWatch(opened.context.objects, f"{state_id}/{claim_key}")
        return ClosingClaimWatch(watch, gateway.close)

    @classmethod
    def open_probe(cls, context: Context) -> Callable[[], None]:
        # One out of so many answers, as long as most of them do.
        tries = len(parse_etcd_url(context.url).endpoints) // 2 + 1
        gateway = _open_gateway(
            context,
            deadline_seconds=_PROBE_SECONDS,
            attempt_seconds=_PROBE_SECONDS / tries,
        )
        return lambda: probe(gateway)

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
        gateway = _open_gateway(
            context,
            deadline_seconds=seconds,
            attempt_seconds=seconds * _ONE_MEMBERS_SHARE,
        )
        return open_etcd(gateway, state_id="", clock=context.clock, only_looks=True)


def _open_gateway(context: Context, **times: Any) -> Gateway:
    """Open the gateway of a backend's URL; the times are those of `Gateway`."""
    address = parse_etcd_url(context.url)
    return Gateway(address, context.settings, clock=context.clock, **times)


def _kept(state: State) -> Kept | None:
    """Which events are kept; None for the default."""
    kept = Kept(state.events.kept_seconds, state.events.kept_number)
    return None if kept == Kept() else kept
