"""The tail of a "no such thing" message: what was probably meant, and how to see what there is."""

from __future__ import annotations

from collections.abc import Sequence


def did_you_mean(wanted: str, known: Sequence[str]) -> str:
    """Suggest the nearest of the known pools, or say that there are none."""
    if not known:
        return "; there are no pools yet, make one with: leasectl pool create TYPE --count N"
    import difflib

    near = difflib.get_close_matches(wanted, known, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ";"
    return f"{hint} list them with: leasectl pool list"
