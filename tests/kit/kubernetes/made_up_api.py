"""An API server in this process, as far as Leases go: resourceVersions, guards, lost answers.

What a real one does is tried in tests/contract; this one fails just where a test wants it to.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Callable, TypeVar

from leasectl.engines.kubernetes.api.address import NAMESPACES, Collection, Json
from leasectl.engines.kubernetes.api.refusals import Absent, AlreadyExists, Conflict
from leasectl.engines.kubernetes.api.requests import Listed
from leasectl.errors import BackendUnreachable

Said = TypeVar("Said")


class Killed(BaseException):
    """The process was killed here."""


class MadeUpApi:
    """As `Api`, for one namespace.

    Attributes:
        asked: What was asked, as verb and name.
        before: Called with the number of each request, before it; may raise.
        after: The same when it was carried out and nobody knows; if it raises, nobody hears of it.
        repeats: A request of which nobody has heard is made again, as the real client does.
        history: Each write: the name of its object, and that as it is then; None for none.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[int], None] = lambda number: None
        self.repeats = False
        self.history: list[tuple[str, dict[str, Any] | None]] = []
        self._versions = itertools.count(1001)
        self._version = 1000
        self._uids = itertools.count(1)

    def list_version(self) -> int:
        """The resourceVersion that a list would have now."""
        return self._version

    def backup(self) -> Callable[[], None]:
        """What brings back all that is there now, and the time of it."""
        objects, version = copy.deepcopy(self.objects), self._version

        def restore() -> None:
            self.objects, self._version = copy.deepcopy(objects), version
            self._versions = itertools.count(version + 1)

        return restore

    def limited(
        self, until: float | None, *, is_strict: bool = False
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def get(self, collection: Collection, name: str) -> Json:
        if collection == NAMESPACES:
            return {}
        return self._do("get", name, lambda: self._there(name))

    def list(self, collection: Collection, *, labels: str = "", fields: str = "") -> Listed:
        def found() -> Listed:
            items = [each for _, each in sorted(self.objects.items()) if _matches(labels, each)]
            return Listed(tuple(copy.deepcopy(items)), str(self._version))

        return self._do("list", labels, found)

    def create(self, collection: Collection, body: Json, *, is_repeatable: bool = False) -> Json:
        name = body["metadata"]["name"]

        def made() -> Json:
            if name in self.objects:
                raise AlreadyExists(name)
            made = copy.deepcopy(dict(body))
            made["metadata"]["uid"] = f"uid-{next(self._uids)}"
            return self._write(name, made)

        return self._do("create", name, made)

    def replace(
        self, collection: Collection, name: str, body: Json, *, is_repeatable: bool = False
    ) -> Json:
        def replaced() -> Json:
            there, wanted = self._there(name)["metadata"], body["metadata"]
            for field in ("uid", "resourceVersion"):
                if there[field] != wanted[field]:
                    raise Conflict(name)
            return self._write(name, copy.deepcopy(dict(body)))

        return self._do("update", name, replaced)

    def delete(
        self,
        collection: Collection,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        is_repeatable: bool = False,
    ) -> Json:
        def deleted() -> Json:
            there = self._there(name)["metadata"]
            for field, wanted in (("uid", uid), ("resourceVersion", resource_version)):
                if wanted is not None and there[field] != wanted:
                    raise Conflict(name)
            self._version = next(self._versions)
            self.history.append((name, None))
            return self.objects.pop(name)

        return self._do("delete", name, deleted)

    def _do(self, verb: str, name: str, act: Callable[[], Said]) -> Said:
        number = len(self.asked)
        self.asked.append((verb, name))
        self.before(number)
        said = act()
        try:
            self.after(number)
        except BackendUnreachable:
            if not self.repeats:
                raise
            return act()
        return said

    def _there(self, name: str) -> dict[str, Any]:
        if name not in self.objects:
            raise Absent(name)
        return copy.deepcopy(self.objects[name])

    def _write(self, name: str, body: dict[str, Any]) -> Json:
        self._version = next(self._versions)
        body["metadata"]["resourceVersion"] = str(self._version)
        body["metadata"].pop("managedFields", None)
        self.objects[name] = body
        self.history.append((name, body))
        return copy.deepcopy(body)


def _matches(selector: str, raw: Json) -> bool:
    labels = raw["metadata"].get("labels", {})
    return all(_holds(each, labels) for each in _terms(selector))


def _terms(selector: str) -> Iterator[str]:
    begun = ""
    for part in selector.split(","):
        begun = f"{begun},{part}" if begun else part
        if begun.count("(") == begun.count(")"):
            yield begun
            begun = ""


def _holds(term: str, labels: Json) -> bool:
    if " in (" in term:
        key, _, values = term.partition(" in (")
        return labels.get(key) in values.rstrip(")").split(",")
    key, equals, value = term.partition("=")
    return labels.get(key) == value if equals else key in labels
