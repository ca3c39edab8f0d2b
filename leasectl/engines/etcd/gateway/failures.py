"""Explain in one line why no member gave a usable answer."""

from __future__ import annotations

from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.text.durations import format_seconds


class Failures:
    """What the members of a cluster said instead of an answer, one reason for each."""

    def __init__(self) -> None:
        self._reasons: dict[str, NoAnswer] = {}

    def note(self, endpoint: str, reason: NoAnswer) -> None:
        """Keep a member's reason, unless an earlier one tells more."""
        before = self._reasons.get(endpoint)
        if before is None or _tells(reason) >= _tells(before):
            self._reasons[endpoint] = reason

    def text(self, within_seconds: float | None = None) -> str:
        """All of it for people, and what to do next.

        Args:
            within_seconds: How long it was asked for, where asking for longer could have helped.
        """
        limit = "" if within_seconds is None else f" within {format_seconds(within_seconds)}"
        said = ", ".join(f"{endpoint}: {reason}" for endpoint, reason in self._reasons.items())
        advice = advice_of(*(reason.advice for reason in self._reasons.values()))
        if not advice and limit:
            several = len(self._reasons) > 1
            advice = "are they there, and do they" if several else "is it there, and does it"
            advice += " have a quorum?"
            if self._reasons and all("refused" in str(each) for each in self._reasons.values()):
                advice = "is etcd running there?"
        return "; ".join(
            filter(None, [f"no answer from etcd{limit}{': ' * bool(said)}{said}", advice])
        )


def advice_of(*advices: str) -> str:
    """What several members' advices come to, each once."""
    return ", or ".join(dict.fromkeys(filter(None, advices)))


def _tells(reason: NoAnswer) -> int:
    """How much it tells; that of the last try can be no more than that there was no time left."""
    return 2 if reason.advice else int(str(reason) != NOT_IN_TIME)
