"""What a lease proxy can't be asked for."""

from __future__ import annotations

from leasectl.backends.kinds import pool_prefixes
from leasectl.errors import NotSupported
from leasectl.model import Request


def check_request(request: Request, wait_seconds: float | None) -> None:
    """Refuse what the protocol has no words for.

    Args:
        request: What is wanted.
        wait_seconds: For how long it may wait; None for no limit.

    Raises:
        NotSupported: It has none.
    """
    for option, given in (
        ("--name", request.name is not None),
        ("--where", bool(request.where)),
        ("--priority", request.priority != 0),
        ("--ttl", request.ttl_seconds is not None),
        ("-w 0", wait_seconds == 0),
    ):
        if given:
            raise NotSupported(
                f"{option} is not supported by the lease proxy; {pool_prefixes('and')} can do it"
            )
