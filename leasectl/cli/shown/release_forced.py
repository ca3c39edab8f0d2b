"""``leasectl release --force``: what it says of what it has ended."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.cli.context import open_service
from leasectl.cli.shown.output import emit_json, emit_lines, note, when_due
from leasectl.leases.release_forced import Forced, check_reason, release_by_force
from leasectl.pools.shown import parse_holder
from leasectl.text.naming import is_name
from leasectl.text.printable import printable


def release_and_tell(
    names: Sequence[str], reason: str, backend: str | None, *, as_json: bool
) -> None:
    """Release by force, print the names, and tell who had them and when they are free."""
    check_reason(reason)
    forced = release_by_force(open_service(backend), names, reason=reason)
    released = tuple(each.name for each in forced if each.ended_before is None)
    if as_json:
        emit_json({"released": released})
    else:
        emit_lines(released)
    untouched = [name for name in names if name not in {each.name for each in forced}]
    if untouched:
        note(f"nobody held {', '.join(untouched)}; see who holds what with: leasectl status")
    for each in forced:
        holder = printable(each.holder_identity, longest=1000)
        if each.ended_before is None:
            note(f"took {each.name} from {holder}; {_when_free(each)}")
        else:
            what = printable(each.ended_before, longest=1000)
            note(f"{each.name} of {holder} had ended already ({what}); {_when_free(each)}")


def _when_free(forced: Forced) -> str:
    left = forced.free_in_seconds
    if left == 0:
        return "it is free, and nobody ends what may still use it: only its fence tells"
    at_latest = ""
    if left is not None:
        at_latest = f", at the latest {when_due(left)}"
    if forced.has_run or left is None:
        return f"it is free when run has ended the command{at_latest}"
    holder = parse_holder(printable(forced.holder_identity, longest=1000))
    if not holder.host or not is_name(holder.handle):  # nobody is to copy what isn't ours
        return f"it is free when its holder gives it up{at_latest}"
    by_run = ", as its run does by itself" if forced.has_run is None else ""
    return (
        f"it is free when its holder gives it up{at_latest}; sooner{by_run}, with: "
        f"leasectl release {holder.handle} (on {holder.host})"
    )
