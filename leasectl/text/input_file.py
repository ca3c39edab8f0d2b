"""Read a file that a command line names."""

from __future__ import annotations

import errno

from leasectl.errors import InvalidRequest, LeaseError, NotAllowed, NotFound
from leasectl.text.wording import printable

MOST_BYTES = 32 << 20  # more than the largest list that is allowed
_NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO)  # the last: a socket


def shown_name(filename: str) -> str:
    """What messages call a file; ``-`` is stdin."""
    return "stdin" if filename == "-" else printable(filename, longest=500)


def read_text(filename: str, option: str) -> str:
    """Read all of a file, or of stdin.

    Args:
        filename: Its name; ``-`` for stdin.
        option: Which option names it.

    Raises:
        LeaseError: It can't be read, with the exit code that says why; it is no text.
    """
    content, where = read_bytes(filename, option), shown_name(filename)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidRequest(f"{where}:{line}: not UTF-8 text") from None


def read_bytes(filename: str, option: str) -> bytes:
    """The same, whatever it holds."""
    where = shown_name(filename)
    if not filename:
        raise InvalidRequest(f"{option} is empty")
    try:
        with open(0 if filename == "-" else filename, "rb", closefd=filename != "-") as file:
            content = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{where}: no such file") from None
    except IsADirectoryError:
        raise InvalidRequest(f"{where}: this is a directory; name a file in it") from None
    except PermissionError:
        raise NotAllowed(f"{where}: you may not read it") from None
    except (OSError, ValueError) as error:
        what = f"{where}: can't be read: {getattr(error, 'strerror', None) or error}"
        if isinstance(error, ValueError) or error.errno in _NO_SUCH_NAME:
            raise InvalidRequest(what) from None
        raise LeaseError(what) from None
    if len(content) > MOST_BYTES:
        raise InvalidRequest(f"{where}: larger than {MOST_BYTES >> 20} MiB")
    return content
