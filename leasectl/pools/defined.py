"""Pools as somebody defines them, and whatever else a file of definitions says."""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.engines.membership import Properties
from leasectl.pools.settings import NO_CHANGE, SettingsChange
from leasectl.typed.hints import Union
from leasectl.typed.tuples import NamedTuple


class DefaultChange(NamedTuple):
    """Whether a pool is to take what nobody else claims; what is None stays as it is.

    Args:
        is_default: It is, or isn't.
        grace_seconds: For so long it is to hold that back.
    """

    is_default: bool | None = None
    grace_seconds: float | None = None


NO_DEFAULT_CHANGE = DefaultChange()


class NamedPool(NamedTuple):
    """A pool of exactly these resources.

    Of those that ``properties`` has, that and nothing else is to be so; the others stay what they
    are.
    """

    type: str
    names: tuple[str, ...]
    settings: SettingsChange = NO_CHANGE
    properties: Mapping[str, Properties] = {}
    default: DefaultChange = NO_DEFAULT_CHANGE


class CountedPool(NamedTuple):
    """A pool of at least and at most so many resources, whatever their names.

    Of all of them ``properties`` and nothing else is to be so; None: they stay what they are.
    """

    type: str
    at_least: int
    at_most: int
    settings: SettingsChange = NO_CHANGE
    properties: Properties | None = None
    default: DefaultChange = NO_DEFAULT_CHANGE


Definition = Union[NamedPool, CountedPool]


class Definitions(NamedTuple):
    """What a file says.

    Args:
        pools: Those that it defines.
        notes: Lines about what in it means nothing here, in its order.
        places: Where each name is listed: the file and, if that is known, the line.
    """

    pools: tuple[Definition, ...]
    notes: tuple[str, ...] = ()
    places: Mapping[str, str] = {}
