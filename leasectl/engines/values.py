"""Values in a store, under keys beside the pools.

A key is ``SPACE/KIND/SUBJECT``, or that with a ``/WORD`` behind it. What is said of one subject is
changed in one step, which is what every engine can do: one with transactions, and one that writes
one object at a time. Only what is of the kind `CONTENT` may be large, and stands for itself: nobody
sees it who doesn't know its key. So it is written before that which tells of it, under a key that
nobody else writes to, such as one with a fence; what is left of whoever dies in between goes when
its time is over.

A change may be guarded by what was there, or by a claim, so that who has lost its lease changes
nothing; and it may give that claim back. Where that isn't the same step, it is the next one:
whoever is killed in between has changed what he was to change, and still holds the claim, which is
then given back as whatever the dead held is. So nobody finds it free before that is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from leasectl.state.event import Event

# The kind of what may be large, and how large it is where an engine has no other limit: bytes.
CONTENT = "content"
LARGEST_CONTENT = 1024 * 1024
MOST_CHANGES = 20


class Value(NamedTuple):
    """What is kept under a key.

    Args:
        key: Words that `text.naming` allows, with "/" between them.
        content: What is kept.
        version: Another with each change of it, also of one that was taken away meanwhile.
        written_at: Wall clock of whoever did that, seconds since the epoch, for people.
    """

    key: str
    content: bytes
    version: int
    written_at: float


class ValueChange(NamedTuple):
    """What is to become of what is kept under a key.

    Args:
        key: Which.
        content: What is kept then; None for nothing.
        version: That it has to have; 0 for nothing there, None for whatever.
        keep_seconds: For how long it is kept, at least; None for good.
    """

    key: str
    content: bytes | None
    version: int | None = None
    keep_seconds: float | None = None


class Guard(NamedTuple):
    """The claim by which a change is allowed.

    Args:
        claim_key: Whose.
        name: Of its resource.
        fence: Of the claim.
        frees: It is given back with the change.
    """

    claim_key: str
    name: str
    fence: int
    frees: bool = False


class Values(Protocol):
    """What an engine keeps under keys.

    Attributes:
        largest_content: Bytes that one of the kind `CONTENT` may have.
    """

    @property
    def largest_content(self) -> int: ...

    def get(self, key: str) -> Value | None:
        """What is kept under a key, if anything is that isn't over."""

    def read(self, prefix: str) -> tuple[Value, ...]:
        """What is kept under keys that begin so, by key, and isn't over; contents aren't among it.

        Args:
            prefix: ``SPACE/KIND/``, or what a subject begins with after that; or nothing, for all.
        """

    def change(
        self,
        changes: Sequence[ValueChange],
        *,
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        """Change what is kept of one subject, all of it at once.

        Where the engine has no transactions a content is written after that, and taken away after
        that: a change that writes one is to write nothing that tells of it.

        Args:
            changes: As `check_changes` allows.
            guard: The claim by which that is allowed; None for anybody. Where the engine has no
                transactions, who had it when it was looked at may still change something until
                whoever has it since does: what that one has read has other versions then.
            event: What is written of it if it is done; its number doesn't count.

        Returns:
            Whether it was done; else nothing has changed: the claim is another's, or a version
            isn't what it has to be.

        Raises:
            NoRoom: There is no room for a content; nothing has changed.
            BackendUnreachable: It may have been done.
        """

    def check_room(self) -> None:
        """Look, before much is done for a content, whether there is room for any.

        Raises:
            NoRoom: There is none, as far as can be told.
        """

    def tidy(self) -> None:
        """Take away what is over, where nothing else does; best effort."""


class Parts(NamedTuple):
    """What a key consists of.

    Args:
        space: Whose it is.
        kind: What is said.
        subject: Of what.
        word: Which of several; empty for none.
    """

    space: str
    kind: str
    subject: str
    word: str = ""


def parts_of(key: str) -> Parts:
    """What a key consists of; ValueError for one that is none."""
    words = key.split("/")
    if not 3 <= len(words) <= 4 or not all(words):
        raise ValueError(f"{key} is no key of a value")
    return Parts(*words)


def is_content(key: str) -> bool:
    """Tell whether what is kept under a key may be large, and stands for itself."""
    return key.split("/")[1:2] == [CONTENT]


def check_changes(changes: Sequence[ValueChange]) -> None:
    """Raise ValueError unless every engine can make these changes in one step.

    They are of one subject, of different keys, `MOST_CHANGES` at most, one content among them.
    """
    parts = [parts_of(each.key) for each in changes]
    if len({(each.space, each.subject) for each in parts}) != 1:
        raise ValueError("changes are to be of one subject")
    if len({each.key for each in changes}) != len(changes) or len(changes) > MOST_CHANGES:
        raise ValueError("changes are too many, or two of one key")
    if sum(is_content(each.key) and each.content is not None for each in changes) > 1:
        raise ValueError("changes write more than one content")
