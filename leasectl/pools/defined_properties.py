"""What an entry of a file says of the properties of its resources.

::

    properties:                 # ours: all that is so of this entry's resources
      region: us-east-1         # of all of them
      account-1: {size: big}    # of one beside that; it wins
    userdata: {region: us-east-1}   # the same of all, as Boskos writes it down of a resource

Boskos keeps ``userdata``, texts by their keys, at each resource (``UserData`` in
kubernetes-sigs/boskos, common/common.go); its own list of resources doesn't know it.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasectl.engines.membership import Properties
from leasectl.errors import InvalidRequest
from leasectl.text.documents import Fields, Part, Scalar
from leasectl.text.printable import printable
from leasectl.text.properties import check_count, check_key, check_value
from leasectl.typed.hints import Callable, NoReturn

KEYS = ("properties", "userdata")

Refuse = Callable[[Part, str], InvalidRequest]


class EntryProperties:
    """The properties that one entry speaks of.

    Args:
        fields: Of the entry.
        names: The names that it lists; None where it lists none.
        path: What messages call the entry.
        refuse: Makes the error that says what is wrong where.
    """

    def __init__(
        self,
        fields: Mapping[str, Part],
        names: tuple[str, ...] | None,
        path: str,
        refuse: Refuse,
    ) -> None:
        self._names = names
        self._path = path
        self._refuse = refuse
        self._of_all: dict[str, str] = {}
        self._of_one: dict[str, dict[str, str]] = {}
        for key in (each for each in KEYS if each in fields):
            self._read(key, fields[key])

    @property
    def of_all(self) -> Properties:
        """What is so of all resources, however many there come to be."""
        return tuple(sorted(self._of_all.items()))

    def by_name(self) -> dict[str, Properties]:
        """What is so of each resource that the entry lists."""
        return {
            name: tuple(sorted({**self._of_all, **self._of_one.get(name, {})}.items()))
            for name in self._names or ()
        }

    def _read(self, what: str, part: Part) -> None:
        path = f"{self._path}.{what}"
        if not isinstance(part, Fields):
            raise self._refuse(part, f"{path} must be a mapping")
        for key, value in part.pairs:
            if isinstance(value, Fields) and what == "properties":
                self._read_named(key, value, path)
            else:
                self._put(self._of_all, key, value, path)
        for name, own in {"": {}, **self._of_one}.items():
            self._check(part, path, {**self._of_all, **own}, name)

    def _read_named(self, name: Scalar, part: Fields, path: str) -> None:
        if self._names is None:
            self._fail(part, f"{path}: an entry without names says only what is so of all")
        if name.text not in self._names:
            self._fail(name, f'{path}: "{printable(name.text)}" is none of the entry\'s names')
        own = self._of_one.setdefault(name.text, {})
        for key, value in part.pairs:
            self._put(own, key, value, f"{path}.{name.text}")

    def _put(self, into: dict[str, str], key: Scalar, value: Part, path: str) -> None:
        if not isinstance(value, Scalar) or value.is_null:
            self._fail(value, f"{path}.{printable(key.text)} must be a word")
        if key.text in into:
            self._fail(key, f'{path}: "{printable(key.text)}" is there twice')
        try:
            into[check_key(key.text)] = check_value(key.text, value.text)
        except InvalidRequest as error:
            self._fail(key, f"{path}: {error}")

    def _check(self, part: Part, path: str, together: dict[str, str], name: str) -> None:
        try:
            check_count(f'"{name}" has' if name else "there are", len(together))
        except InvalidRequest as error:
            self._fail(part, f"{path}: {error}")

    def _fail(self, part: Part, what: str) -> NoReturn:
        raise self._refuse(part, what) from None
