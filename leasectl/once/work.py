"""Which work is the same: a key, and all that is said to go into it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from leasectl.text.naming import reserved_type
from leasectl.typed.tuples import NamedTuple


class Work(NamedTuple):
    """A piece of work, of which there is to be one result.

    Args:
        key: What people call it.
        digest: Of the key and its inputs, in hexadecimal.
    """

    key: str
    digest: str

    @property
    def pool_type(self) -> str:
        """Of the pool that is made for it, and the name of its one resource."""
        return reserved_type(self.digest)


def work_of(key: str, inputs: Iterable[bytes]) -> Work:
    """The work of a key with these inputs, in their order.

    Each has its length before it, so that no two lists of inputs are the same bytes.
    """
    sha256 = hashlib.sha256()
    for each in (key.encode(), *inputs):
        sha256.update(len(each).to_bytes(8, "big"))
        sha256.update(each)
    return Work(key, sha256.hexdigest())
