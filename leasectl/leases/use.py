"""Use: what a holder hands out of what it holds can't be taken back meanwhile; no server is asked.

In use is a name or it isn't, that isn't counted. It keeps a reclaim from getting it, and nothing
else: a release, a timer, a guard's end and force go on, and end the use with the lease.
"""

from __future__ import annotations

import time

from leasectl.errors import LeaseLost, NotAllowed
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget
from leasectl.state.uses import SeenMark, Uses
from leasectl.text.durations import format_duration
from leasectl.text.printable import printable


def use(service: Service, target: ReleaseTarget, name: str) -> None:
    """Have a name be in use from now on; if it is already, nothing happens.

    Args:
        service: On the state directory of its handle.
        target: The handle, and the acquisition that is meant.
        name: Of what it holds.

    Raises:
        NotAllowed: It doesn't hold that, or somebody was answered that it can have it back.
        LeaseLost: It has lost that.
    """
    uses = Uses(service.state)
    with service.state.transaction():
        handle = _holding(service, target, name)
        mark = uses.marks(handle).get(name)
        if mark is not None and mark.is_ready:
            raise _is_wanted_back(service, name, mark)
        uses.begin(handle, name)


def unuse(service: Service, target: ReleaseTarget, name: str) -> bool:
    """Have a name be in use no more; whatever became of the lease, that is no error.

    Returns:
        Whether it was in use.
    """
    with service.state.transaction():
        return Uses(service.state).end(target.handle_id, name, now=service.clock.elapsed())


def _holding(service: Service, target: ReleaseTarget, name: str) -> Handle:
    handle = service.handles.require(target.handle_id)
    is_current = handle.acquisition == target.acquisition and handle.state == "held"
    if is_current and name in handle.names:
        return handle
    if handle.lost:
        why = f" ({handle.lost_reason})" if handle.lost_reason else ""
        raise LeaseLost(
            f"handle {handle.id} has lost its lease{why}; get a new one with: "
            f"leasectl reacquire --handle {service.state.names_path(handle.id)}"
        )
    raise NotAllowed(
        f'handle {handle.id} doesn\'t hold "{printable(name)}"; see what it holds with: '
        f"leasectl cat {service.state.names_path(handle.id)}"
    )


def _is_wanted_back(service: Service, name: str, mark: SeenMark) -> NotAllowed:
    left = mark.ends_at - service.clock.elapsed()
    if left >= 1:
        at = time.strftime("%H:%M:%S UTC", time.gmtime(service.clock.wall() + left))
        when = f"in {format_duration(left)} at the latest, at {at}"
    else:
        when = "any moment"
    return NotAllowed(
        f'"{name}" can\'t be used: {mark.asked_by} wants it back and was answered that it is '
        f"ready; it is taken, or can be used again, {when}"
    )
