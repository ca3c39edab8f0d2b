"""What an entry of a file says of the pool that takes whatever nobody else claims.

::

    default: true     # ours, as is the next: this pool is that; false: it isn't
    grace: 2m         # it holds back what comes there for so long
"""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.errors import InvalidRequest
from leasectl.pools.defined import DefaultChange
from leasectl.pools.defined_properties import Refuse
from leasectl.pools.settings import check_grace
from leasectl.text.documents import Part, Scalar
from leasectl.text.durations import parse_duration

DEFAULT_KEYS = ("default", "grace")
_BOOLEANS = {"true": True, "false": False}


def read_default(fields: Mapping[str, Part], path: str, refuse: Refuse) -> DefaultChange:
    """Read it of the fields of an entry.

    Args:
        fields: Of the entry.
        path: What messages call the entry.
        refuse: Makes the error that says what is wrong where.

    Raises:
        InvalidRequest: It can't be meant.
    """
    is_default = _boolean(fields["default"], path, refuse) if "default" in fields else None
    if "grace" not in fields:
        return DefaultChange(is_default)
    if not is_default:
        raise refuse(
            fields["grace"], f"{path}: grace is of the default pool; say default: true, too"
        )
    return DefaultChange(is_default, _grace(fields["grace"], path, refuse))


def _boolean(part: Part, path: str, refuse: Refuse) -> bool:
    if not isinstance(part, Scalar) or not part.plain or part.text not in _BOOLEANS:
        raise refuse(part, f"{path}.default: say true or false")
    return _BOOLEANS[part.text]


def _grace(part: Part, path: str, refuse: Refuse) -> float:
    if not isinstance(part, Scalar):
        raise refuse(part, f"{path}.grace must be a word")
    try:
        seconds = parse_duration(part.text)
        check_grace(seconds)
    except InvalidRequest as error:
        raise refuse(part, f"{path}.grace: {error}") from None
    return seconds
