"""Tell programs the properties of leased resources.

It is what is so when it is asked: what a resource becomes while it is held doesn't touch its lease,
and so isn't on record with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.kinds import kind_of_handle
from leasectl.errors import LeaseError
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.text.naming import is_name
from leasectl.text.wording import followed_by

if TYPE_CHECKING:
    from leasectl.engines.membership import Properties
    from leasectl.engines.pool_admin import Members

VARIABLE = "LEASECTL_PROPERTIES"
PREFIX = "LEASECTL_PROPERTY_"
# What Linux takes as one string of an environment is 128 KiB (MAX_ARG_STRLEN in execve(2)).
LONGEST_VARIABLE = 120_000  # bytes
_NOT_IN_A_VARIABLE = re.compile(r"[^A-Z0-9]")


class PropertyVariables(NamedTuple):
    """Properties as variables of an environment.

    Args:
        values: By the names of the variables.
        warnings: What isn't among them, and why, a line each.
    """

    values: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def property_variables(service: Service, handle: Handle) -> PropertyVariables:
    """What the resources are that a handle holds, as variables; asks the backend once at most.

    Where that doesn't answer there are none, rather than wrong ones, and a warning.
    """
    try:
        return as_variables(properties_of(service, handle))
    except LeaseError as error:
        return PropertyVariables({}, (followed_by(error, f"{VARIABLE} isn't set"),))


def properties_of(service: Service, handle: Handle) -> dict[str, Properties]:
    """What the resources are that a handle holds, by their names; nothing where nothing has any.

    Raises:
        LeaseError: The backend can't be asked now.
    """
    if not handle.leases or not kind_of_handle(handle).has_pools:
        return dict.fromkeys(handle.names, ())
    return properties_by_name(service.backend_of(handle).members, handle.names)


def properties_by_name(members: Members, names: Sequence[str]) -> dict[str, Properties]:
    """What some resources are, by their names.

    Raises:
        LeaseError: The backend can't be asked now.
    """
    found = {each.name: each.properties for each in members.members(names)}
    return {name: tuple(filter(_is_sound, each)) for name, each in found.items()}


def _is_sound(one: tuple[str, str]) -> bool:
    """Tell whether it is what we would have written: a server's word goes into an environment."""
    key, value = one
    return is_name(key) and value.isprintable()


def is_variable(name: str) -> bool:
    """Tell whether a variable is one of those that hold properties."""
    return name == VARIABLE or name.startswith(PREFIX)


def as_variables(properties: Mapping[str, Properties]) -> PropertyVariables:
    """Write properties as a program finds them: all as JSON, and of one resource each by itself.

    Two keys that would be the same variable are in the JSON only: whoever reads that variable means
    one of them, and nobody knows which.
    """
    values, warnings = {}, []
    text = as_json(properties)
    if len(text.encode()) <= LONGEST_VARIABLE:
        values[VARIABLE] = text
    else:
        warnings.append(f"{VARIABLE} isn't set: it would be {len(text.encode())} bytes long")
    own = next(iter(properties.values())) if len(properties) == 1 else ()
    keys: dict[str, list[str]] = {}
    for key, value in own:
        variable = variable_of(key)
        keys.setdefault(variable, []).append(key)
        values[variable] = value
    for variable, same in keys.items():
        if len(same) > 1:
            del values[variable]
            either = " and ".join(f'"{each}"' for each in same)
            warnings.append(f"{variable} isn't set: it could be {either}; see {VARIABLE}")
    return PropertyVariables(values, tuple(warnings))


def variable_of(key: str) -> str:
    """The variable that one property of the only resource is in."""
    return PREFIX + _NOT_IN_A_VARIABLE.sub("_", key.upper())


def as_json(properties: Mapping[str, Properties]) -> str:
    """Write properties by the names of their resources, on one line."""
    if not any(properties.values()):  # as nearly always, and json takes its time to load
        return "{" + ", ".join(f'"{name}": {{}}' for name in properties) + "}"
    import json

    by_name = {name: dict(each) for name, each in properties.items()}
    return json.dumps(by_name, ensure_ascii=False)
