"""Files that a variable of the environment or an option names: certificates, keys, passwords."""

from __future__ import annotations

from typing import NamedTuple

from leasectl.errors import CorruptState, FileUnreadable
from leasectl.text.printable import printable

_LONGEST_BYTES = 16 << 20


class NamedFile(NamedTuple):
    """A file, with what messages about it say.

    Args:
        what: It is, like "user file".
        path: Where it is.
        named_by: The variable or the option that names it.
    """

    what: str
    path: str
    named_by: str

    def read(self, longest_bytes: int = _LONGEST_BYTES) -> bytes:
        """Read all of it, or its first so many bytes.

        Raises:
            FileUnreadable: It isn't there, or may not be read.
        """
        try:
            with open(self.path, "rb") as file:
                return file.read(longest_bytes)
        except OSError as error:
            raise FileUnreadable(
                f"{self}: {error.strerror or error}; {self.named_by} must name one that can be read"
            ) from error

    def refused(self, what: str, wanted: str = "does") -> CorruptState:
        """The error for a file that isn't what it should be; says nothing of what is in it."""
        return CorruptState(f"{self} {what}; {self.named_by} must name one that {wanted}")

    def __str__(self) -> str:
        return f"{self.what} {printable(self.path, longest=500)}"
