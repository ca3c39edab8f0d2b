"""The operations of the API, each within a deadline.

Reads are repeated until they are answered. A write is repeated if the caller says that this is
safe, or if it can't have been carried out: nothing was sent, or the server says that it was too
busy. Any other write whose answer is lost ends with `LostAnswer`, and its caller reads back.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.kubernetes.api.address import Collection, Deed, Json
from leasectl.engines.kubernetes.api.asking import Asking, Reply
from leasectl.engines.kubernetes.api.refusals import Expired, MadeAnew
from leasectl.errors import BackendUnreachable
from leasectl.http.messages import Call, encode_query

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.api.watching import Watch

_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_PAGE = 500
_MOST_PAGES = 2000  # an etcd holds no more objects
# Of a whole list: 100,000 leases have some 150 MB. Decoded, they take several times as much memory.
_LONGEST_LIST = 256 << 20
_LIST_SECONDS = 120.0
# A list of several pages is one as it was at one time, which the server forgets after minutes.
_MOST_LISTS = 3


class Listed(NamedTuple):
    """All objects that were asked for, as they were at one time.

    Args:
        items: Them, sorted by name; without the kind that each would have by itself.
        resource_version: That time: where a watch goes on from, and later than all before.
    """

    items: tuple[Json, ...]
    resource_version: str


class Api(Asking):
    """The API of one cluster, as one user; the arguments are those of `Asking`.

    All raise, beside what they name:

    - `AccessRefused`: the server doesn't know us (401), we may not (403), a file or program that
      says who we are can't be used, TLS is refused, there is no such namespace; with the exit code
      of that;
    - `BackendUnreachable`: no answer before the deadline, or none that could come;
    - `Unanswered`, as ``pause`` raises it.

    Writes also:

    - `LostAnswer`, a `BackendUnreachable`: it may have been carried out;
    - `InvalidRequest`: the server doesn't take it (413, 422);
    - `CorruptState`: it doesn't understand it (400).
    """

    # What is done with objects

    def get(self, collection: Collection, name: str) -> Json:
        """One object, as it is now: a consistent read.

        Raises:
            Absent: There is none of that name.
        """
        return self._ask(Deed("get", collection, name), "GET", is_repeatable=True).said

    def list(self, collection: Collection, *, labels: str = "", fields: str = "") -> Listed:
        """All objects, or those that selectors select, as they are now: a consistent read, paged.

        Args:
            collection: Of which.
            labels: A label selector, like ``a=b,c``.
            fields: A field selector, like ``metadata.name=a``.
        """
        for _ in range(_MOST_LISTS):
            with contextlib.suppress(Expired):
                return self._list(collection, labels, fields)
        raise BackendUnreachable(
            f"{Deed('list', collection)}: it changes faster than it is read; try again"
        )

    def create(
        self,
        collection: Collection,
        body: Json,
        *,
        name: str = "",
        subresource: str = "",
        is_repeatable: bool = False,
    ) -> Json:
        """Make an object, or what belongs to one, like an eviction; returns it as it was made.

        Args:
            collection: Where.
            body: It; ``metadata.name`` says what it is called.
            name: Whose, where it is of a subresource.
            subresource: Of which, like ``eviction``.
            is_repeatable: It may be carried out more than once.

        Raises:
            AlreadyExists: There is one of that name; a try before may have made it, where it is
                repeatable.
            Busy: An eviction may not be now, most often by a PodDisruptionBudget.
            Absent: What it is to belong to isn't there.
            Conflict: Or is another.
        """
        deed = Deed("create", collection, name, subresource)
        return self._ask(deed, "POST", body, is_repeatable=is_repeatable).said

    def check_creation(self, collection: Collection, name: str) -> None:
        """Ask whether an object could be made; none is.

        Raises:
            AlreadyExists: There is one of that name.
            CorruptState: An admission webhook there doesn't support dry runs.
        """
        deed, body = Deed("create", collection), {"metadata": {"name": name}}
        self._ask(deed, "POST", body, is_repeatable=True, query={"dryRun": "All"})

    def replace(
        self, collection: Collection, name: str, body: Json, *, is_repeatable: bool = False
    ) -> Json:
        """Write an object that is there, as long as it is the one that was read; returns it.

        Args:
            collection: Where.
            name: Of the object.
            body: All of it, with the uid and the resourceVersion that were read: a server makes
                what isn't there from one without a uid, which would bring a lease back.
            is_repeatable: It may be tried again although a try before may have been carried out;
                then that is the `Conflict`.

        Raises:
            Conflict: It is another by now, or has been changed.
            Absent: It isn't there.
            MadeAnew: It wasn't there, and is now.
            ValueError: ``body`` has no uid or resourceVersion.
        """
        metadata = body.get("metadata") or {}
        if not metadata.get("uid") or not metadata.get("resourceVersion"):
            raise ValueError("a PUT without uid and resourceVersion could bring back what is gone")
        deed = Deed("update", collection, name)
        status, said, _ = self._ask(deed, "PUT", body, is_repeatable=is_repeatable)
        if status == 201:
            raise MadeAnew(f"{deed}: it was gone, and the server has made it again", said)
        return said

    def patch(
        self, collection: Collection, name: str, body: Json, *, is_repeatable: bool = False
    ) -> Json:
        """Merge into an object that is there (RFC 7396); returns it.

        Args:
            collection, name, is_repeatable: As for `replace`.
            body: What is to be other than it is; with the resourceVersion that was read, if only
                that may be changed.

        Raises:
            Conflict, Absent: As `replace`.
        """
        deed = Deed("patch", collection, name)
        reply = self._ask(
            deed, "PATCH", body, is_repeatable=is_repeatable, content_type=_MERGE_PATCH
        )
        return reply.said

    def delete(
        self,
        collection: Collection,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        is_repeatable: bool = False,
    ) -> Json:
        """Take an object away, if it is the one that was meant.

        Args:
            collection, name: Of the object.
            uid: The uid that it has to have; None for any.
            resource_version: The resourceVersion that it has to have; None for any.
            is_repeatable: As for `replace`; a try before may be why it is `Absent`.

        Raises:
            Conflict: It is another, or has been changed.
            Absent: It isn't there.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in wanted.items() if value is not None}
        body: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            body["preconditions"] = preconditions
        deed = Deed("delete", collection, name)
        return self._ask(deed, "DELETE", body, is_repeatable=is_repeatable).said

    def watch(
        self,
        collection: Collection,
        *,
        resource_version: str,
        name: str = "",
        labels: str = "",
    ) -> Watch:
        """What happens to objects from some time on; nothing is asked before it is entered.

        Args:
            collection: Of which.
            resource_version: After which: that of a list, or of an event of a watch before.
            name: The only one; empty for all.
            labels: A label selector; empty for all.

        Returns:
            A context manager that yields the events; any thread can `cut` it.
        """
        from leasectl.engines.kubernetes.api.watching import Watch

        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            **_selectors(labels, f"metadata.name={name}" if name else ""),
        }
        deed = Deed("watch", collection, name)
        path = f"{collection.path()}?{encode_query(query)}"
        return Watch(self._login, deed, path, seconds=self._deadline_seconds)

    def ask(self, deed: Deed, method: str, body: Json | None = None) -> Json:
        """Anything else, that may be repeated: what an API server says of us, or of itself."""
        return self._ask(deed, method, body, is_repeatable=True).said

    # How

    def _list(self, collection: Collection, labels: str, fields: str) -> Listed:
        items: list[Json] = []
        query = {"limit": str(_PAGE), **_selectors(labels, fields)}
        deed = Deed("list", collection)
        until, length = self._clock.elapsed() + _LIST_SECONDS, 0
        for _ in range(_MOST_PAGES):
            reply = self._ask(deed, "GET", query=query, is_repeatable=True)
            said, length = reply.said, length + reply.length
            found, metadata = said.get("items") or [], said.get("metadata")
            if not _are_objects(found) or not isinstance(metadata, dict):
                raise BackendUnreachable(f"{deed}: the answer is not a list; is it an API server?")
            items += found
            if not metadata.get("continue"):
                return Listed(tuple(items), str(metadata.get("resourceVersion", "")))
            if length > _LONGEST_LIST:
                raise BackendUnreachable(f"{deed}: it is longer than {_LONGEST_LIST >> 20} MiB")
            if self._clock.elapsed() > until:
                raise BackendUnreachable(f"{deed}: it took longer than {_LIST_SECONDS:g} s")
            query = {**query, "continue": str(metadata["continue"])}
        raise BackendUnreachable(f"{deed}: it has no end after {_MOST_PAGES} pages")

    def _ask(
        self,
        deed: Deed,
        method: str,
        body: Json | None = None,
        *,
        is_repeatable: bool,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> Reply:
        path = deed.path + (f"?{encode_query(query)}" if query else "")
        content, headers = b"", {"Accept": _JSON}
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), content_type
        call = Call(path, content, headers, method)
        return self._send(deed, call, is_repeatable=is_repeatable)


def _are_objects(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(each, dict) for each in found)


def _selectors(labels: str, fields: str) -> dict[str, str]:
    given = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in given.items() if value}
