"""Values in a store, under keys beside the pools.

A key is ``SPACE/KIND/SUBJECT``, or that with a ``/WORD`` behind it. The values of one subject are
changed in one step. Every engine can do that: one with transactions, and one that writes one object
at a time. Only values of the kind `CONTENT` may be large. A content is an object of its own, and no
process finds it without its key. So it is written before the value that refers to it, under a key
that no other process writes to, such as one with a fence. If the writer dies in between, the
content expires.

A change may be guarded by what was there, or by a claim, so that a process that has lost its lease
changes nothing. It may also give that claim back. If that isn't the same step, it is the next one:
a process that is killed in between has made its change and still holds the claim, which is then
released as any claim of a dead holder. So no other process gets the claim before the change.
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
    """A value with its key.

    Args:
        key: Words that `text.naming` allows, with "/" between them.
        content: The value.
        version: Differs after each change, also if the value was removed meanwhile.
        written_at: Wall clock of the writer, seconds since the epoch, for people.
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
        """Change the values of one subject, all at once.

        If the engine has no transactions, a content is written and removed after the other values.
        So a change that writes a content must not write a value that refers to it.

        Args:
            changes: Those that `check_changes` allows.
            guard: The claim that allows it; None for none. If the engine has no transactions, a
                holder that has just lost the claim may still change something until the next holder
                does; the values that this one has read then have other versions.
            event: Written if the change is made; its number doesn't count.

        Returns:
            Whether it was made; else nothing has changed: the claim is another's, or a version
            isn't the expected one.

        Raises:
            NoRoom: There is no room for a content; nothing has changed.
            BackendUnreachable: It may have been made.
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
