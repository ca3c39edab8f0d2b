"""Release by force, or withdraw requests, and print what that has ended."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.cli.context import open_service
from leasectl.cli.rendering.output import ReleasedForm, emit_json, emit_released, note, when_due
from leasectl.leases.release_forced import (
    Forced,
    check_reason,
    release_all_by_force,
    release_by_force,
    withdraw_waiting,
)
from leasectl.leases.service import Expected
from leasectl.leases.targets import whole_names
from leasectl.pools.overview import parse_holder
from leasectl.text.naming import as_given, is_name
from leasectl.text.wording import printable


def release_and_tell(
    names: Sequence[str],
    reason: str,
    backend: str | None,
    expected: Expected,
    *,
    at_once: bool,
    form: ReleasedForm,
) -> None:
    """Release by force, print the names, and tell who had them and when they are free."""
    check_reason(reason)
    service = open_service(backend)
    whole = whole_names(service, names)
    held = [*filter(None, whole.values())]
    forced = release_by_force(service, held, reason=reason, expected=expected, at_once=at_once)
    _tell([], forced, form)
    taken = {each.name for each in forced}
    untouched = [name or typed for typed, name in whole.items() if name not in taken]
    if untouched:
        note(f"nobody held {', '.join(untouched)}; see who holds what with: leasectl status")


def withdraw_and_tell(
    holder: str, reason: str, backend: str | None, *, force: bool, form: ReleasedForm
) -> None:
    """Withdraw the requests of a holder, and tell which."""
    entries = withdraw_waiting(open_service(backend), holder, reason=reason, force=force)
    identities = [printable(each.holder_identity, longest=1000) for each in entries]
    if form == "json":
        emit_json({"released": [], "withdrawn": identities})
    for each in identities:
        note(f"withdrew the request of {each}")
    if not identities:
        whose = printable(holder, longest=1000)
        note(f"no request of {whose} waits; see who does with: leasectl status")


def release_all_and_tell(
    reason: str, backend: str | None, *, at_once: bool, form: ReleasedForm
) -> None:
    """Release all that this state directory holds, and tell of what was released by force."""
    service = open_service(backend, for_handles=True)
    released, forced, failed = release_all_by_force(service, reason=reason, at_once=at_once)
    _tell(released, forced, form)
    if failed is not None:
        raise failed


def _tell(released: Sequence[str], forced: Sequence[Forced], form: ReleasedForm) -> None:
    """Print names, and say who had each lease that was ended, and when it is free."""
    ended = [each.name for each in forced if each.ended_before is None]
    emit_released([*released, *ended], form)
    for each in forced:
        holder = as_given(each.holder_identity)
        if each.ended_before is None:
            note(f"took {each.name} from {holder}; {_when_free(each)}")
        else:
            what = printable(each.ended_before, longest=1000)
            note(f"{holder} had already lost {each.name} ({what}); {_when_free(each)}")


def leaves_later(forced: Forced, pool_type: str) -> str:
    """What ``pool remove --force`` says of a name that stays until its lease has ended."""
    holder = as_given(forced.holder_identity)
    return (
        f'took {forced.name} from {holder}; it leaves pool "{pool_type}" once it is free; '
        f"{_when_free(forced)}"
    )


def _when_free(forced: Forced) -> str:
    left = forced.free_in_seconds
    if forced.is_at_risk:
        return (
            f"it is free now. Warning: its former holder (fencing token {forced.fence}) may still "
            f"use it; stop that holder, or have the resource reject tokens up to {forced.fence}"
        )
    if left == 0:
        return "it is free now; stop the processes that may still use it"
    at_latest = "" if left is None else f", at the latest {when_due(left)}"
    now = (
        "; if the holder's machine is gone, free it now with: leasectl release "
        f"--names {forced.name} --force --now"
    )
    if forced.has_run or left is None:
        return (
            "it is free when the leasectl run or Python program that holds it gives it up"
            f"{at_latest}{now}"
        )
    holder = parse_holder(forced.holder_identity)
    if not holder.host or not is_name(holder.handle):  # nobody is to copy what isn't ours
        return f"it is free when its holder gives it up{at_latest}{now}"
    return (
        f"it is free when its holder gives it up{at_latest}; to give it up now, run on "
        f"{holder.host}: leasectl release {holder.handle}{now}"
    )
