"""What was answered to a reclaim, and should be over by now."""

from __future__ import annotations

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.leases.service import Service
from leasectl.state.uses import Uses
from leasectl.text.wording import counted, listed

# A keeper that lives takes off what has ended; where its server is away for a moment, a bit later.
_LATE_SECONDS = 60.0


def ready_to_be_taken(service: Service) -> Finding:
    """Is there anything that can't be used, since nobody has come for it in time?"""
    ready = [
        (seen.target, seen.mark) for seen in Uses(service.state).all_seen() if seen.mark.is_ready
    ]
    late_since = service.clock.elapsed() - _LATE_SECONDS
    late = [target for target, mark in ready if mark.ends_at < late_since]
    if not late:
        names = [name for target, _ in ready for name in target.names or ()]
        return Finding(OK, f"ready to be taken back: {listed(names) or 'nothing'}")
    texts = [f"{listed(target.names or ())} of {target.handle_id}" for target in late]
    return Finding(
        WARN,
        f"{counted(len(late), 'name')} that no reclaim has come for in time, and that can't be "
        f"used until the mark has gone: {listed(texts)}",
        "the keeper takes it off as soon as its server answers; if none runs, any next command "
        "starts it",
    )
