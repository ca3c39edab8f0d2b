"""The work: its key, its inputs, and work that asks for itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from leasectl.errors import InvalidRequest, LeaseError, NotFound
from leasectl.leases.service import Service
from leasectl.model import Labels
from leasectl.text.naming import escape_name, reserved_type, work_labels, work_title
from leasectl.text.wording import printable

ID_DIGITS = 12  # of the digest: the id of a work
_MOST_SHOWN = 3
_LONGEST_HEAD, _LONGEST_TAIL = 24, 23


class Work(NamedTuple):
    """Work with one result.

    Args:
        key: Its name, as given.
        digest: SHA-256 of the key and all inputs, in hexadecimal. Pools and keys of the store are
            named after it, so key and inputs never become part of a path or an object's name.
        inputs: The inputs, shortened for people; empty for none.
    """

    key: str
    digest: str
    inputs: str = ""

    @property
    def id(self) -> str:
        """The beginning of the digest, as `once --list` shows it."""
        return self.digest[:ID_DIGITS]

    @property
    def title(self) -> str:
        """The key and the shortened inputs, for messages."""
        return work_title(self.key, self.inputs)

    @property
    def labels(self) -> Labels:
        """The labels of a request for the work's lease."""
        return work_labels(self.key, self.inputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The key and the shortened inputs as events hold them: each escaped to one word."""
        return tuple(escape_name(each) for each in (self.key, self.inputs) if each)

    @property
    def pool_type(self) -> str:
        """The type of the work's own pool, and the name of its one resource."""
        return reserved_type(self.digest)


def is_work_id(text: str) -> bool:
    """Return whether text may be the id of a work, or a longer part of its digest."""
    return len(text) >= ID_DIGITS and not text.strip("0123456789abcdef")


def work_of(key: str, inputs: Iterable[bytes], files: Iterable[tuple[str, bytes]] = ()) -> Work:
    """Return the work of a key with these inputs, in their order.

    The digest covers each part with its length before it, so no two lists of inputs share one.

    Args:
        key: The name.
        inputs: Texts.
        files: Name and content of each file. Only contents count, and only names are shown.
    """
    texts, contents = [*inputs], [*files]
    sha256 = hashlib.sha256()
    for each in (key.encode(), *texts, *(content for _, content in contents)):
        sha256.update(len(each).to_bytes(8, "big"))
        sha256.update(each)
    digest = sha256.hexdigest()
    shown = [each.decode("utf-8", "surrogateescape") for each in texts]
    return Work(key, digest, _shown(shown, [name for name, _ in contents], digest[:ID_DIGITS]))


def _shown(texts: Sequence[str], files: Sequence[str], work_id: str) -> str:
    """Shorten inputs to one text; what doesn't show all of them ends with the id of the work."""
    given = [*texts, *files]
    if not given:
        return ""
    parts = [_shorten(each) for each in given[:_MOST_SHOWN]]
    rest = len(given) - _MOST_SHOWN
    shown = ", ".join(parts) + (f" and {rest} more" if rest > 0 else "")
    is_whole = not files and rest <= 0 and parts == given and "," not in "".join(given)
    return shown if is_whole else f"{shown} [{work_id}]"


def _shorten(text: str) -> str:
    safe = printable(text, longest=len(text) * 10) or '""'
    if len(safe) <= _LONGEST_HEAD + _LONGEST_TAIL + 1:
        return safe
    return f"{safe[:_LONGEST_HEAD]}…{safe[-_LONGEST_TAIL:]}"


class TooLarge(LeaseError):
    """A result is larger than what can be kept."""

    exit_code = 65


def refuse_waiting_for_itself(service: Service, work: Work) -> None:
    """Refuse a work that is under way by a command that waits for us.

    Args:
        service: Where works are under way, and who asks.
        work: The work that we ask for.

    Raises:
        InvalidRequest: We would wait for ourselves.
    """
    around = service.caller.around
    if not around:
        return
    try:
        (pool,) = service.pools.pools(work.pool_type)
    except NotFound:
        return
    holders = {(each.claim_key or "").partition("/")[0] for each in pool.resources}
    if not holders.isdisjoint(around):
        raise InvalidRequest(
            f"work {work.title} is requested from within its own command, perhaps through other "
            "work, and would wait for itself; use another KEY or --input, or request it outside"
        )
