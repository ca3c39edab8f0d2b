"""What Boskos can't be asked for."""

from __future__ import annotations

from leasectl.backends.kinds import pool_prefixes
from leasectl.errors import NotSupported
from leasectl.model import Request


def check_request(request: Request) -> None:
    """Refuse what Boskos knows nothing of.

    Raises:
        NotSupported: It is asked for.
    """
    for option, given in (
        ("--where", bool(request.where)),
        ("--priority", request.priority != 0),
    ):
        if given:
            raise NotSupported(
                f"{option} is not supported by Boskos; {pool_prefixes('and')} can do it"
            )
