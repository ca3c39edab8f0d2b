"""What a reclaim would ask for, and why: the answer to ``leasectl reclaim --dry-run``."""

from __future__ import annotations

from collections import Counter

from leasectl.cli.shown.output import note, show, show_json, when_due
from leasectl.cli.shown.table import Column, table
from leasectl.cli.shown.terminal import output_width, shows_colour
from leasectl.reclaim.held import Held
from leasectl.reclaim.look import Ground, look
from leasectl.reclaim.plan import begin, next_step
from leasectl.reclaim.wanted import Wanted
from leasectl.text.durations import format_duration
from leasectl.text.printable import printable
from leasectl.text.wording import counted

_COLUMNS = (
    Column("NAME", shrinks=3, at_least=12),
    Column("HELD FOR", right=True),
    Column("HOLDER", shrinks=1, at_least=16),
    Column("WHY", shrinks=2, at_least=16, cut="end"),
)


def show_plan(ground: Ground, wanted: Wanted, *, as_json: bool) -> None:
    """Show what would be marked once the delay is over, if all stays as it is; nothing changes."""
    held = look(ground, group_by=wanted.group_by)
    now = ground.clock.elapsed()
    at_once = wanted._replace(delay_seconds=0.0)
    step = next_step(at_once, held, begin(at_once, held, now), now)
    adopted = [each for each in held if each.id in step.memory.asked]
    unused = Counter(each.group for each in held if not each.is_in_use)
    found = [(each, _why_adopted(each)) for each in adopted]
    found += [(each, _why(each, wanted, unused)) for each in step.ask]
    if as_json:
        show_json([_as_json(each, why) for each, why in found])
    elif found:
        rows = [(e.name, format_duration(e.held_seconds), _who(e), why) for e, why in found]
        show(table(_COLUMNS, rows, output_width(), colour=shows_colour()).text)
    in_use = sum(each.is_in_use for each in held)
    if in_use and not as_json:
        note(f"{counted(in_use, 'lease')} of the pool in use, as far as that can be seen from here")
    if step.ask and not as_json:
        note(f"would be asked for {when_due(wanted.delay_seconds)}, if it stays so")
    missing = step.missing - len(found)
    if missing > 0 and not as_json:
        note(
            f"{f'only {len(found)}' if found else 'none'} could be asked for, of "
            f"{counted(step.missing, 'lease')} wanted back: whatever else would do is in use, or "
            "nobody holds it"
        )
    if not found and not missing and not as_json:
        note("nothing is in excess")


def _why_adopted(each: Held) -> str:
    mark = each.mark
    if mark is None:
        return ""
    answer = "ready" if mark.state == "ready" else "no answer yet"
    return f"marked already by {printable(mark.asked_by, longest=200)}: {answer}"


def _why(each: Held, wanted: Wanted, unused: Counter[str]) -> str:
    if wanted.names is not None:
        return "named"
    if wanted.longer_than_seconds is not None:
        return f"held for longer than {format_duration(wanted.longer_than_seconds)}"
    number = unused[each.group]
    which = "the only unused name" if number == 1 else f"one of {number} unused names"
    if wanted.group_by is None:
        return f"{which} of its handle"
    value = printable(each.group, longest=200)
    return f"{which} with {wanted.group_by}={value}"


def _who(each: Held) -> str:
    return printable(each.holder_identity, longest=300)


def _as_json(each: Held, why: str) -> dict[str, object]:
    return {
        "name": each.name,
        "fence": each.fence,
        "holder": each.holder_identity,
        "held_seconds": round(each.held_seconds, 3),
        "marked": each.mark is not None,
        "why": why,
    }
