"""A backend that there isn't: all that a new one needs is a module like this, and its row.

Its server is this process's memory. Run as a program it is `leasectl` with one backend more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from leasectl.backends import kinds
from leasectl.backends.contract import Opening
from leasectl.backends.kinds import Kind, no_backend
from leasectl.backends.pool.backend import PoolBackend
from leasectl.backends.servers import ClaimWatch, Renew
from leasectl.doctor.findings import OK, Check, Finding
from leasectl.engines.notes import NoteListener
from leasectl.engines.pool_admin import Sides
from leasectl.errors import NotSupported
from leasectl.http.settings import Settings
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.system.clock import Clock
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore

KIND = Kind(
    schemes=("madeup",),
    title="a made-up server",
    example="madeup://HOST",
    choice="madeup://HOST",
    help="madeup://HOST (for tests)",
    opener="tests.kit.made_up_backend",
    remote=True,
    has_pools=True,
    default_ttl_seconds=7.0,
    claim_server="tests.kit.made_up_backend",
    examined_by="tests.kit.made_up_backend",
)
TYPES = ("crane--red", "crane--yellow")


def check_url(url: str) -> None:
    if not url.startswith("madeup://"):
        raise no_backend(url)


def check_request(request: Request, wait_seconds: float | None) -> None:
    if request.name is not None:
        raise NotSupported(f"--name is not supported by {KIND.title}")


def open_backend(url: str, opening: Opening) -> PoolBackend:
    store = MadeUpStore(opening.clock, opening.lost)
    for each in TYPES:
        store.pools.create_pool(each, [f"{each}--00"])
    return PoolBackend(
        url,
        MadeUpEngine(store),
        store.sides,
        clock=opening.clock,
        remote=True,
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
    return lambda claim_key, names: (f"{claim_key} of {state_id} for {ttl_seconds:g}s at {url}",)


def open_claim_watch(
    url: str, *, state_id: str, settings: Settings, claim_key: str, fence: int, clock: Clock
) -> ClaimWatch | None:
    return None


def open_probe(url: str, settings: Settings, *, clock: Clock) -> Callable[[], None]:
    return lambda: None


def pool_types(url: str, settings: Settings, *, seconds: float, clock: Clock) -> Sequence[str]:
    return TYPES


def resource_names(
    url: str,
    settings: Settings,
    begin: str,
    types: Collection[str],
    *,
    seconds: float,
    clock: Clock,
) -> Sequence[str]:
    return [f"{each}--00" for each in TYPES if not types or each in types]


def open_to_look(url: str, settings: Settings, *, seconds: float, clock: Clock) -> Sides | None:
    return None


def checks(url: str, settings: Settings, environment: Mapping[str, str]) -> list[Check]:
    return [Check("made-up server", lambda: Finding(OK, f"{url} is up"))]


def checks_of_claims(service: Service, settings: Settings) -> list[Check]:
    return [Check("made-up claims", lambda: Finding(OK, "none"))]


if __name__ == "__main__":
    kinds.KINDS = (*kinds.KINDS, KIND)
    from leasectl.cli.app import main

    main()
