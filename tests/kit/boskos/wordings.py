"""What Boskos says when it refuses: in the words of today, of older ones, and of one to come."""

from __future__ import annotations

import json
from typing import NamedTuple


class Refused(Exception):
    """A request was refused.

    Args:
        status: Of the answer.
        text: Its line.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Wording(NamedTuple):
    """How it says what.

    Args:
        none_free: With a type, or with whatever else there is none of.
        no_type: With a type.
        prefixes: Whether the error has what failed before it.
        quotes: Whether the type is in double quotes.
    """

    none_free: str = "no available resource {}, try again later."
    no_type: str = "resource type {} does not exist"
    prefixes: bool = True
    quotes: bool = True

    def no_resource(self, what: str) -> str:
        return self.none_free.format(what)

    def no_such_type(self, pool_type: str) -> str:
        return self.no_type.format(json.dumps(pool_type) if self.quotes else pool_type)

    def failed(self, deed: str, text: str) -> str:
        """What an answer says, of what was to be done and why it wasn't."""
        return f"{deed}: {text}" if self.prefixes else text


WORDINGS = {
    "new": Wording(),
    "old": Wording(prefixes=False, quotes=False),
    # Nobody has seen this one yet.
    "other": Wording("nothing of {} to hand out", "never heard of {}", quotes=False),
}


def other_owner(asking: str, owner: str) -> str:
    return f"owner mismatch request by {asking}, currently owned by {owner}"


def other_state(expected: str, state: str) -> str:
    return f"state mismatch - expected {expected}, current {state}"
