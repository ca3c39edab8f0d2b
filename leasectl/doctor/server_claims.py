"""Do the claims of this state directory on a server and its handles agree?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from leasectl.backends.kinds import claim_key_of
from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.errors import LeaseLost
from leasectl.leases.renew import renew
from leasectl.leases.service import Service
from leasectl.model import Handle, whole
from leasectl.text.wording import counted, listed
from leasectl.typed.hints import Callable

Free = Callable[[str], Sequence[str]]


def agreement(
    service: Service, where: str, claim_keys: Callable[[], Collection[str]], free: Free
) -> Finding:
    """Compare what is held there by what the records know.

    Args:
        service: Of the state directory and the server.
        where: What the server is called.
        claim_keys: Says which claims of this state directory are there.
        free: Gives back what a claim key holds, and returns the names.
    """
    # Before the records, so that no claim made since counts as unknown.
    there = claim_keys()
    handles = {claim_key_of(each): each for each in service.handles.active()}
    # Also of one that names the same server in other words.
    unknown = [claim_key for claim_key in there if claim_key not in handles]
    gone = [
        handle
        for claim_key, handle in handles.items()
        if service.is_here(handle)
        and handle.leases
        and not handle.waiter
        and claim_key not in there
    ]
    if not unknown and not gone:
        return Finding(OK, f"{counted(len(there), 'claim')} of this state directory, as recorded")
    parts = []
    if unknown:
        parts.append(f"{listed(unknown)} in {where} without a handle here")
    if gone:
        parts.append(f"{listed([each.id for each in gone])} without a claim in {where}: lost")
    return Finding(
        WARN,
        "; ".join(parts),
        "run: leasectl doctor --fix",
        mend=lambda: _settle(service, free, unknown, gone),
    )


def _settle(service: Service, free: Free, unknown: Sequence[str], gone: Sequence[Handle]) -> str:
    freed = [name for claim_key in unknown for name in free(claim_key)]
    lost = []
    for handle in gone:
        try:
            renew(service, whole(handle))
        except LeaseLost:
            lost.append(handle.id)
    return f"gave back {listed(freed) or 'nothing'}; recorded as lost: {listed(lost) or 'none'}"
