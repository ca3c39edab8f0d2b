"""Give programs the properties of leased resources.

They are read when they are asked for, and not recorded with the lease: a change to a resource while
it is held doesn't affect its lease.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.kinds import kind_of_handle
from leasectl.errors import LeaseError, NotFound
from leasectl.leases.paths import handle_at, read_names
from leasectl.leases.service import Service, lost_error
from leasectl.model import Handle
from leasectl.text.naming import is_name
from leasectl.text.wording import followed_by, printable

if TYPE_CHECKING:
    from leasectl.engines.pool_admin import Members
    from leasectl.engines.rules.membership import Properties

VARIABLE = "LEASECTL_PROPERTIES"
PREFIX = "LEASECTL_PROPERTY_"
# Linux limits one string of an environment to 128 KiB (MAX_ARG_STRLEN in execve(2)).
LONGEST_VARIABLE = 120_000  # bytes
_NOT_IN_A_VARIABLE = re.compile(r"[^A-Z0-9]")


class PropertyVariables(NamedTuple):
    """Properties as environment variables.

    Args:
        values: By the names of the variables.
        warnings: Which properties are missing, and why, a line each.
    """

    values: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def property_variables(service: Service, handle: Handle) -> PropertyVariables:
    """Return the properties of a handle's resources as variables; ask the backend at most once.

    If the backend doesn't answer, return no variables rather than wrong ones, and a warning.
    """
    try:
        return as_variables(properties_of(service, handle))
    except LeaseError as error:
        return PropertyVariables({}, (followed_by(error, f"{VARIABLE} isn't set"),))


def properties_of(service: Service, handle: Handle) -> dict[str, Properties]:
    """Return the properties of a handle's resources by name; empty if none has any.

    Raises:
        LeaseError: The backend can't be asked now.
    """
    if not handle.leases or not kind_of_handle(handle).has_pools:
        return dict.fromkeys(handle.names, ())
    return properties_by_name(service.backend_of(handle).members, handle.names)


def properties_by_name(members: Members, names: Sequence[str]) -> dict[str, Properties]:
    """Return the properties of resources by name.

    Raises:
        LeaseError: The backend can't be asked now.
    """
    found = {each.name: each.properties for each in members.members(names)}
    return {name: tuple(filter(_is_sound, each)) for name, each in found.items()}


def property_at(service: Service, path: str, key: str) -> tuple[str, ...]:
    """Return a property of each resource that a handle, or a copy of one, names.

    Args:
        service: On the state directory.
        path: See `handle_at`.
        key: Of the property.

    Raises:
        NotFound: A resource lacks the property, or the handle doesn't exist.
        LeaseLost: The handle has lost all that it held.
    """
    record = handle_at(service, path) if path else None
    if record is not None and record.lost and not record.names:
        raise lost_error(record, service.state)
    if record is not None:
        properties = properties_of(service, record)
    else:
        names = read_names(path) if path else ()
        properties = dict.fromkeys(names, ())
        if names and service.kind.has_pools:
            properties = properties_by_name(service.members, names)
    if not properties:
        raise NotFound(
            f'handle "{printable(path)}" holds no resource, so none has a property "{key}"'
        )
    for name, each in properties.items():
        if key not in dict(each):
            has = ", ".join(k for k, _ in each) or "none"
            raise NotFound(f'"{name}" has no property "{key}"; it has {has}')
    return tuple(dict(each)[key] for each in properties.values())


def _is_sound(one: tuple[str, str]) -> bool:
    """Return whether we could have written a property: a server's text goes into an environment."""
    key, value = one
    return is_name(key) and value.isprintable()


def is_variable(name: str) -> bool:
    """Return whether a variable is one of those that hold properties."""
    return name == VARIABLE or name.startswith(PREFIX)


def as_variables(properties: Mapping[str, Properties]) -> PropertyVariables:
    """Return the variables: all properties as JSON, and those of a single resource one by one.

    Two keys that would be the same variable are only in the JSON, since a reader of that variable
    could get the wrong one.
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
            warnings.append(
                f"{variable} isn't set, because several keys would set it: {either}; read "
                f"{VARIABLE} instead"
            )
    return PropertyVariables(values, tuple(warnings))


def variable_of(key: str) -> str:
    """Return the variable for one property of the only resource."""
    return PREFIX + _NOT_IN_A_VARIABLE.sub("_", key.upper())


def as_json(properties: Mapping[str, Properties]) -> str:
    """Write properties by the names of their resources, on one line."""
    if not any(properties.values()):  # the usual case; json takes long to load
        return "{" + ", ".join(f'"{name}": {{}}' for name in properties) + "}"
    import json

    by_name = {name: dict(each) for name, each in properties.items()}
    return json.dumps(by_name, ensure_ascii=False)
