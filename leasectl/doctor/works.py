"""Work that is done once: has whoever was killed left anything of it that nobody needs?"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.engines.local import audit
from leasectl.leases.on_demand import remove_unused
from leasectl.leases.service import Service
from leasectl.text.naming import is_reserved
from leasectl.text.wording import counted


def left_here(service: Service) -> Finding:
    """Which of the embedded pools that were made for work are there, although nobody does it?"""
    return _left_behind(service, audit.unused_pools(service.state))


def left_on_server(service: Service) -> Finding:
    """The same of a server's."""
    pools = service.pools.pools()
    return _left_behind(service, [each.type for each in pools if not each.held and not each.queue])


def _left_behind(service: Service, unused: Sequence[str]) -> Finding:
    left = [each for each in unused if is_reserved(each)]
    if not left:
        return Finding(OK, "nothing is left of work that was to be done once")

    def mend() -> str:
        for each in left:
            remove_unused(service.backend_at(service.backend_url, service.settings), each)
        return f"removed what was left of {counted(len(left), 'work')}"

    return Finding(
        WARN,
        f"of {counted(len(left), 'work')} that nobody does any more something is left",
        "harmless: whoever asks for it next uses it; to remove it: leasectl doctor --fix",
        mend=mend,
    )
