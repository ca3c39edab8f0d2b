"""Read kubeconfigs, and merge them as kubectl does.

Of a name that is in several files the first one counts, whole; so does the first current context.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leasectl.engines.kubernetes.api.entries import (
    MEND_IT,
    ClusterEntry,
    Entry,
    UserEntry,
    is_null,
    read_cluster,
    read_user,
)
from leasectl.errors import CorruptState, FileUnreadable, InvalidRequest, NotSupported
from leasectl.http.settings import NamedFile
from leasectl.http.tls import look_at
from leasectl.text.documents import Fields, Items, Part, Scalar, parse_document
from leasectl.text.wording import printable

_LONGEST_BYTES = 4 << 20
# By path: how a file looked before it was read, and what it said; for whoever reads it next.
_known: dict[str, tuple[tuple[int, ...], dict[str, Part]]] = {}
_AS_JSON = "kubectl config view --raw --flatten -o json"


class ContextEntry(NamedTuple):
    """A context: a cluster and a user, by name.

    Args:
        name: Its own.
        cluster: Of the cluster.
        user: Of the user; empty for nobody.
        namespace: Which is meant where none is named; None for the usual one.
    """

    name: str
    cluster: str
    user: str
    namespace: str | None


class Kubeconfig(NamedTuple):
    """What some files say together.

    Args:
        paths: Theirs.
        named_by: The variable or the option that names them.
        current: The context that is meant where none is named; None for none.
        contexts, clusters, users: By name.
    """

    paths: tuple[str, ...]
    named_by: str
    current: str | None
    contexts: dict[str, Entry]
    clusters: dict[str, Entry]
    users: dict[str, Entry]

    def context(self, name: str | None) -> ContextEntry:
        """A context, by name; None for the current one.

        Raises:
            InvalidRequest: There is none.
            CorruptState: It isn't what a context should be.
        """
        if not self.contexts:
            raise CorruptState(f"{self._files} has no contexts; {MEND_IT}")
        if name is None and not self.current:
            raise InvalidRequest(
                f"{self._files} has no current context; name one in the address, "
                f"like kubernetes://namespace?context={printable(next(iter(self.contexts)))}"
            )
        name = name or self.current or ""
        entry = self.contexts.get(name)
        if entry is None:
            raise InvalidRequest(
                f'{self._files} has no context "{printable(name)}"{self._meant(name)}; '
                "name one that it has in the address, like kubernetes://namespace?context=name"
            )
        cluster = entry.text("cluster")
        if not cluster:
            raise entry.refused("names no cluster")
        return ContextEntry(
            name, cluster, entry.text("user") or "", entry.text("namespace") or None
        )

    def cluster(self, context: ContextEntry) -> ClusterEntry:
        """Where the cluster of a context is.

        Raises:
            CorruptState: It isn't there, or isn't what a cluster should be.
        """
        return read_cluster(self._entry("cluster", context.cluster, self.clusters, context))

    def user(self, context: ContextEntry) -> UserEntry:
        """As whom a context goes there.

        Raises:
            CorruptState: It isn't there, or isn't what a user should be.
            NotSupported: It says so in a way that isn't known here.
        """
        if not context.user:
            return UserEntry(found_in(context.name, self.paths))
        return read_user(self._entry("user", context.user, self.users, context))

    def _entry(
        self, kind: str, name: str, entries: dict[str, Entry], context: ContextEntry
    ) -> Entry:
        if name not in entries:
            raise CorruptState(
                f'{found_in(context.name, self.paths)} has the {kind} "{printable(name)}", which '
                f"isn't there; {MEND_IT}"
            )
        return entries[name]

    def _meant(self, name: str) -> str:
        from leasectl.text.wording import nearest

        near = nearest(name, list(self.contexts))
        return f'; did you mean "{printable(near)}"?' if near else ""

    @property
    def _files(self) -> str:
        return f"kubeconfig {printable(':'.join(self.paths), longest=500)}"


def found_in(context: str, kubeconfigs: tuple[str, ...]) -> str:
    """Where a context is written, for messages."""
    files = printable(":".join(kubeconfigs), longest=500)
    return f'context "{printable(context)}" in {files}'


def read_kubeconfigs(
    paths: Sequence[str],
    *,
    named_by: str,
    all_there: bool,
    for_another: bool = False,
    is_recorded: bool = False,
) -> Kubeconfig:
    """Read and merge some files.

    Args:
        paths: Theirs, the one that counts more before the other.
        named_by: The variable or the option that names them.
        all_there: None may be missing; else it is enough that one is there.
        for_another: Keep what is read for whoever reads them next, and only for that one.
        is_recorded: They were chosen before, and the variable may name others by now.

    Raises:
        FileUnreadable: One isn't there, or may not be read.
        CorruptState: One isn't a kubeconfig.
        NotSupported: One is YAML, and nothing here can read that.
    """
    there = paths if all_there else [path for path in paths if os.path.exists(path)]
    if not there:
        shown = printable(", ".join(paths), longest=500)
        advice = f"{named_by} must name a kubeconfig that is there"
        if is_recorded:
            advice = "restore the kubeconfig that named the cluster"
        raise FileUnreadable(f"there is no {shown}; {advice}")
    merged = Kubeconfig(tuple(paths), named_by, None, {}, {}, {})
    for path in there:
        merged = _with(merged, NamedFile("kubeconfig", path, named_by), for_another)
    return merged


def _with(merged: Kubeconfig, file: NamedFile, for_another: bool) -> Kubeconfig:
    top = _document(file, for_another=for_another)
    for each in ("contexts", "clusters", "users"):
        entries: dict[str, Entry] = getattr(merged, each)
        for entry in _entries(file, top, each):
            entries.setdefault(entry.name, entry)
    current = top.get("current-context")
    is_text = isinstance(current, Scalar) and not current.is_null
    text = current.text if isinstance(current, Scalar) and is_text else None
    return merged if merged.current else merged._replace(current=text or None)


def _document(file: NamedFile, *, for_another: bool) -> dict[str, Part]:
    look = look_at(file.path)
    known = _known.pop(file.path, None)
    if known is None or known[0] != look:
        known = look, _read_document(file)
    if for_another:
        _known[file.path] = known
    return known[1]


def _read_document(file: NamedFile) -> dict[str, Part]:
    content = file.read(_LONGEST_BYTES + 1)
    if len(content) > _LONGEST_BYTES:
        raise file.refused(f"has more than {_LONGEST_BYTES >> 20} MiB", "is a kubeconfig")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise file.refused("isn't a text in UTF-8", "is a kubeconfig") from None
    try:
        document = parse_document(text, str(file), as_json=_AS_JSON)
    except NotSupported:
        raise
    except InvalidRequest as error:
        raise CorruptState(
            f"{error}; {file.named_by} must name one that is a kubeconfig"
        ) from error
    if isinstance(document, Scalar) and document.is_null:
        return {}  # as kubectl has it
    if not isinstance(document, Fields):
        raise file.refused("is not a kubeconfig", "is one")
    return {key.text: value for key, value in document.pairs}


def _entries(file: NamedFile, top: dict[str, Part], name: str) -> Iterator[Entry]:
    """The entries of a list, whose items are like ``{name: …, cluster: {…}}``."""
    part = top.get(name)
    if part is None or (isinstance(part, Scalar) and part.is_null):
        return
    if not isinstance(part, Items):
        raise file.refused(f"has {name} that are no list", "is a kubeconfig")
    kind = name.removesuffix("s")
    for number, item in enumerate(part.items):
        fields = dict(_fields(item))
        entry_name, content = fields.get("name"), fields.get(kind)
        if not isinstance(entry_name, Scalar) or not entry_name.text:
            raise file.refused(f"has {name}[{number}] without a name", "is a kubeconfig")
        entry = Entry(kind, entry_name.text, file.path, dict(_fields(content)))
        if content is not None and not isinstance(content, Fields) and not is_null(content):
            raise entry.refused("says nothing that has names")
        yield entry


def _fields(part: Part | None) -> Iterator[tuple[str, Part]]:
    if isinstance(part, Fields):
        for key, value in part.pairs:
            yield key.text, value
