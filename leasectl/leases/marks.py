"""Marks: how a reclaim asks a holder to give a lease back, and is answered. Pure functions.

A mark is what is noted at a claim (`leasectl.engines.notes`), so it goes with the claim, and each
step is guarded by the claim's fence and by the very text that was there before::

    nothing -> marked           a reclaim asks; a second one adopts the mark that is there
    marked  -> ready or keep    the holder answers
    ready   -> keep             the holder changes its mind; a "keep" is its last word
    ready   -> the claim's end  the reclaim frees it (`Notes.free`)
    any     -> nothing          a reclaim takes it off: not ready, enough freed, or ended; the
                                holder takes off what has ended, and only then uses it again

No two marks have the same id, so no two texts are the same either: whoever acts on an older one
changes nothing. A mark ends by itself `Mark.seconds` after it was made. As clocks of two hosts
can't be compared, whoever looks counts that from when it saw the mark first, by a clock of its own
that measures elapsed time. That a mark has ended says only that somebody may take it off: what is
noted is what holds.
"""

from __future__ import annotations

import json
import os

from leasectl.engines.notes import LONGEST_NOTE
from leasectl.text.durations import LONGEST_SECONDS
from leasectl.text.fields import MALFORMED, read_name, read_number, read_text
from leasectl.text.printable import printable
from leasectl.typed.hints import Any, Literal
from leasectl.typed.tuples import NamedTuple

MarkState = Literal["marked", "ready", "keep"]
Answered = Literal["ready", "keep"]

LONGEST_ASKER = 100  # characters, so that it fits into a note whichever they are


class Mark(NamedTuple):
    """That somebody wants a lease back, and what its holder says to that.

    Args:
        id: Of this mark alone.
        asked_by: Who wants it back, for people; it can be shown as it is.
        state: ``marked`` until the holder has answered.
        seconds: For how long the mark is good.
        made_at: Wall clock of whoever made it, for people only.
    """

    id: str
    asked_by: str
    state: MarkState
    seconds: float
    made_at: float

    def answered(self, state: Answered) -> Mark:
        """The same mark with an answer."""
        return self._replace(state=state)


def new_mark(asked_by: str, *, seconds: float, now: float) -> Mark:
    """A mark that there hasn't been yet; one for each lease that is asked for.

    Args:
        asked_by: Who wants it back.
        seconds: For how long it is good.
        now: Wall clock, seconds since the epoch.
    """
    shown = printable(asked_by, longest=LONGEST_ASKER)
    return Mark(os.urandom(8).hex(), shown, "marked", seconds, now)


def asked_in_words(mark: Mark) -> str:
    """What the record of events says of a mark that is put."""
    return f"asked by {mark.asked_by} to give it back"


def answered_in_words(state: Answered) -> str:
    """What it says of a holder's answer."""
    return f"answered {state}"


def taken_off_in_words(mark: Mark | None, *, has_ended: bool = False) -> str:
    """What it says of a mark that is taken off; nothing of what isn't any.

    Args:
        mark: As it was seen.
        has_ended: It has ended by itself.
    """
    if mark is None:
        return ""
    last = "no answer" if mark.state == "marked" else f"the last answer was {mark.state}"
    return f"{'its mark has ended' if has_ended else 'asked for no more'} ({last})"


def encode_mark(mark: Mark) -> str:
    """Write it as a note; `parse_mark` reads it back."""
    return json.dumps(mark._asdict())


def parse_mark(text: str) -> Mark | None:
    """Read a note that anybody may have written; None when it is no mark.

    Then a holder doesn't heed it, and a reclaim may put a mark in its place.
    """
    if len(text) > LONGEST_NOTE:
        return None
    try:
        record = json.loads(text)
        if set(record) != set(Mark._fields):
            return None
        return Mark(
            id=read_name(record["id"]),
            asked_by=_read_asker(record["asked_by"]),
            state=_read_state(record["state"]),
            seconds=_read_seconds(record["seconds"]),
            made_at=read_number(record["made_at"]),
        )
    except MALFORMED:
        return None


def _read_asker(value: Any) -> str:
    asker = read_text(value)
    if asker != printable(asker, longest=LONGEST_ASKER):
        raise ValueError("whoever asks has a name that can't be shown")
    return asker


def _read_state(value: Any) -> MarkState:
    for state in ("marked", "ready", "keep"):
        if value == state:
            return state
    raise ValueError("there is no such state")


def _read_seconds(value: Any) -> float:
    seconds = read_number(value)
    if not 0 <= seconds <= 2 * LONGEST_SECONDS:
        raise ValueError("no mark is good for so long")
    return seconds
