""" "Did you mean": find similar names."""

from __future__ import annotations

from collections.abc import Collection, Sequence

NO_POOLS = (
    "there are no pools yet; create one with: leasectl pool create POOL --count N, or those in a "
    "file with: leasectl pool apply -f FILE"
)
# What other tools call our options.
_OTHER_NAMES = {
    "--deadline": "--wait",
    "--endpoints": "--backend",
    "--expires": "--ttl",
    "--file": "--filename",
    "--follow": "--watch",
    "--lease-duration": "--ttl",
    "--number": "--count",
    "--pid": "--guard-pid",
    "--pool": "--type",
    "--retries": "--attempts",
    "--server": "--backend",
    "--timeout": "--wait",
    "--wait-timeout": "--wait",
}
# What other tools call our commands, or people would: the first that a group has is meant.
_OTHER_COMMANDS: dict[str, tuple[str, ...]] = {
    "claim": ("acquire",),
    "delete": ("pool delete", "release"),
    "describe": ("status", "list"),
    "drop": ("release", "delete"),
    "exec": ("run",),
    "free": ("release",),
    "get": ("list", "status", "cat"),
    "heartbeat": ("renew",),
    "keep-alive": ("renew",),
    "lock": ("acquire", "run"),
    "ls": ("list", "status"),
    "list": ("status", "pool list"),
    "new": ("create", "acquire"),
    "ps": ("status",),
    "rm": ("remove", "delete", "release"),
    "show": ("list", "status", "cat"),
    "take": ("acquire",),
    "top": ("status --watch",),
    "unlock": ("release",),
    "with": ("run",),
}


def did_you_mean(wanted: str, known: Sequence[str]) -> str:
    """Suggest the nearest of the known pools, or say that there are none."""
    if not known:
        return f"; {NO_POOLS}"
    near = nearest(wanted, known)
    hint = f'; did you mean "{near}"?' if near else ";"
    return f"{hint} list them with: leasectl pool list"


def nearest(wanted: str, known: Sequence[str]) -> str | None:
    """The one of some words that was probably meant; None when none is like it."""
    import difflib

    near = difflib.get_close_matches(wanted, known, n=1)
    return near[0] if near else None


def commands_meant(wanted: str, known: Sequence[str]) -> list[str]:
    """The commands of a group that do what is called otherwise elsewhere, else the nearest.

    Args:
        wanted: What was written.
        known: The group's commands.
    """
    import difflib

    meant = [each for each in _OTHER_COMMANDS.get(wanted, ()) if each.split()[0] in known]
    return meant or difflib.get_close_matches(wanted, known, n=1)


def option_meant(wanted: str, known: Collection[str]) -> str | None:
    """The option that does what one of another tool does, where a command has it."""
    meant = _OTHER_NAMES.get(wanted)
    return meant if meant in known else None
