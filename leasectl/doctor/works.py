"""Work that is done once: has whoever was killed left anything of it that nobody needs?"""

from __future__ import annotations

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.leases.on_demand import remove_unused
from leasectl.leases.service import Service
from leasectl.text.naming import is_reserved
from leasectl.text.wording import counted


def left_behind(service: Service) -> Finding:
    """Which pools that were made for work are there still, although nobody does it, or waits?"""
    made = [each for each in service.pools.pools() if is_reserved(each.type)]
    unused = [each.type for each in made if not each.held and not each.queue]
    if not unused:
        return Finding(OK, f"{counted(len(made), 'work')} under way, and nothing left of others")

    def mend() -> str:
        for each in unused:
            remove_unused(service.pools, each)
        return f"removed what was left of {counted(len(unused), 'work')}"

    return Finding(
        WARN,
        f"of {counted(len(unused), 'work')} that nobody does any more something is left",
        "harmless: whoever asks for it next uses it; to remove it: leasectl doctor --fix",
        mend=mend,
    )
