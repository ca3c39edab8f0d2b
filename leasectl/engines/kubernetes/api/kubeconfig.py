"""Read kubeconfigs, merge them as kubectl does, and check their clusters and users.

If a name is in several files, its first entry counts as a whole, and so does the first current
context. An unknown field of a user is refused: it might be another way to name an identity, and
without it the requests would be sent as another user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from leasectl.engines.kubernetes.api.address import found_in
from leasectl.errors import CorruptState, FileUnreadable, InvalidRequest, NotSupported
from leasectl.http.settings import NamedFile
from leasectl.http.tls import Pem, look_at
from leasectl.text.documents import Fields, Items, Part, Scalar, parse_document
from leasectl.text.wording import nearest, printable

# What to do about whatever is wrong in a kubeconfig.
MEND_IT = "correct the file, or name another kubeconfig in LEASECTL_KUBECONFIG"

_HOST = r"(?:[^\s/?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
_SERVER = rf"https?://{_HOST}(/[^\s?#@]*)?"
_PROXY = rf"https?://(?:[^\s/?#@]*@)?{_HOST}/?"
_SERVER_NAME = r"[A-Za-z0-9_:][A-Za-z0-9_.:-]{0,252}"
_USER_FIELDS = frozenset(
    (
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
        *("token", "tokenFile", "exec", "extensions"),
        *("as", "as-uid", "as-groups", "as-user-extra"),
    )
)
_NOT_SUPPORTED = {
    "auth-provider": "kubectl no longer supports it; name its plugin in exec",
    "username": "current API servers accept no user name with a password",
    "password": "current API servers accept no password",
}
_OF_HEADERS = "it contains control or non-ASCII characters, or begins or ends with a space"
_LONGEST_BYTES = 4 << 20
# By path: how a file looked before it was read, and what it said; for whoever reads it next.
_known: dict[str, tuple[tuple[int, ...], dict[str, Part]]] = {}
_AS_JSON = "kubectl config view --raw --flatten -o json"


class Entry(NamedTuple):
    """One of the things that a kubeconfig lists.

    Args:
        kind: ``cluster``, ``user`` or ``context``.
        name: Its own.
        path: Of the file that has it.
        fields: What it says.
    """

    kind: str
    name: str
    path: str
    fields: dict[str, Part]

    def __str__(self) -> str:
        return f'{self.kind} "{printable(self.name)}" in {printable(self.path, longest=500)}'

    def refused(self, what: str) -> CorruptState:
        """The error for one that isn't what it should be; says nothing of what is in it."""
        return CorruptState(f"{self} {what}; {MEND_IT}")

    def text(self, field: str) -> str | None:
        """A field that is a text; None where it isn't there, or is empty.

        Raises:
            CorruptState: It is something else.
        """
        part = self.fields.get(field)
        if part is None or _is_empty(part):
            return None
        if not isinstance(part, Scalar):
            raise self.refused(f"has a {printable(field)} that is not text")
        return self.handed_on(field, part.text)

    def truth(self, field: str) -> bool:
        """A field that is true or false, which it is where it isn't there."""
        said = self.text(field)
        if said not in (None, "true", "false"):
            raise self.refused(f"has a {field} that is neither true nor false")
        return said == "true"

    def texts(self, field: str) -> list[str]:
        """A field that is a list of texts; empty where it isn't there."""
        part = self.fields.get(field)
        if part is None or is_null(part):
            return []
        items = part.items if isinstance(part, Items) else (part,)
        texts = [each.text for each in items if isinstance(each, Scalar)]
        if not isinstance(part, Items) or len(texts) != len(items):
            raise self.refused(f"has an invalid {field}, which must be a list of strings")
        return [self.handed_on(field, text) for text in texts]

    def handed_on(self, field: str, text: str) -> str:
        """A text that can be handed to the system, as a path or a variable; `refused` if not."""
        if "\0" in text or not is_encodable(text):
            raise self.refused(f"has a character in {printable(field)} that isn't allowed there")
        return text

    def path_of(self, field: str) -> str | None:
        """A field that is the path of a file, seen from the kubeconfig."""
        said = self.text(field)
        return os.path.join(os.path.dirname(self.path), said) if said else None

    def source(self, field: str) -> Source | None:
        """What is in a file, or with ``-data`` in the kubeconfig itself, which counts more."""
        data = self.text(f"{field}-data")
        if data is not None:
            return Source(f"{field}-data of {self}", data=self._decoded(f"{field}-data", data))
        path = self.path_of(field)
        return None if path is None else Source(f"{field} of {self}", path=path)

    def _decoded(self, field: str, data: str) -> bytes:
        from base64 import b64decode  # only here: few have what isn't in files

        try:
            return b64decode("".join(data.split()), validate=True)
        except ValueError:
            raise self.refused(f"has a {field} that isn't in base64") from None


class Source(NamedTuple):
    """Where something in PEM form is.

    Args:
        label: It, for messages.
        path: The file that it is in; None where it is in the kubeconfig itself.
        data: It, in that case.
    """

    label: str
    path: str | None = None
    data: bytes = b""

    def read(self) -> Pem:
        """Read it.

        Raises:
            FileUnreadable: The file isn't there, or may not be read.
        """
        if self.path is None:
            return Pem(self.data, self.label, MEND_IT)
        file = NamedFile("file", self.path, self.label)
        source = f"{self.label}, {printable(self.path, longest=500)},"
        return Pem(file.read(), source, MEND_IT)


class ClusterEntry(NamedTuple):
    """Where a cluster is.

    Args:
        label: It, for messages.
        server: The address of its API, without a "/" at the end.
        ca: Whom to trust; None for the usual ones.
        is_verified: Whether it has to show a certificate that is trusted.
        server_name: Whose certificate it has to be; None for that of the address.
        proxy_url: The HTTP proxy on the way there; None for none.
        exec_config: What it tells plugins; None for nothing.
    """

    label: str
    server: str
    ca: Source | None = None
    is_verified: bool = True
    server_name: str | None = None
    proxy_url: str | None = None
    exec_config: Part | None = None


class UserEntry(NamedTuple):
    """A user of a kubeconfig.

    Args:
        label: It, for messages.
        certificate: To show; None for none.
        key: Its key.
        token: A bearer token; None for none.
        token_file: The path of a file with one, which counts more; None for none.
        plugin: The program that has one, or a certificate; None for none.
        headers: Who to be there, having been let in.
    """

    label: str
    certificate: Source | None = None
    key: Source | None = None
    token: str | None = None
    token_file: str | None = None
    plugin: Entry | None = None
    headers: tuple[tuple[str, str], ...] = ()


def read_cluster(entry: Entry) -> ClusterEntry:
    """Read where a cluster is.

    Raises:
        CorruptState: It doesn't say.
        NotSupported: It says so in a way that isn't known here.
    """
    server = entry.text("server")
    if server is None:
        raise entry.refused("has no server")
    if "@" in server:
        raise entry.refused("has a server URL with a user, which belongs into a user entry")
    if not _is_address(_SERVER, server):
        raise entry.refused(
            f'has the server "{printable(server)}", which is not an address like https://host:port'
        )
    is_verified = not entry.truth("insecure-skip-tls-verify")
    ca = entry.source("certificate-authority")
    if ca is not None and not is_verified:
        raise entry.refused("has both certificate-authority and insecure-skip-tls-verify")
    server_name, proxy_url = entry.text("tls-server-name"), _proxy_url(entry)
    if server_name and not re.fullmatch(_SERVER_NAME, server_name, re.ASCII):
        raise entry.refused("has an invalid tls-server-name")
    if server_name and proxy_url:
        raise NotSupported(
            f"{entry} has tls-server-name and proxy-url, which can't be combined; {MEND_IT}"
        )
    return ClusterEntry(
        str(entry),
        server.rstrip("/"),
        ca,
        is_verified,
        server_name,
        proxy_url,
        _extension(entry, "client.authentication.k8s.io/exec"),
    )


def read_user(entry: Entry) -> UserEntry:
    """Read as whom to go somewhere; no file is read, and no plugin asked.

    Raises:
        CorruptState: It isn't what a user should be.
        NotSupported: It says so in a way that isn't known here.
    """
    for field in entry.fields:
        if field in _NOT_SUPPORTED and not _is_empty(entry.fields[field]):
            raise NotSupported(
                f"{entry} has {field}, which isn't supported: {_NOT_SUPPORTED[field]}; {MEND_IT}"
            )
        if field not in _USER_FIELDS and field not in _NOT_SUPPORTED:
            raise NotSupported(
                f'{entry} has the unknown field "{printable(field)}", which might change the user; '
                f"{MEND_IT}"
            )
    certificate, key = entry.source("client-certificate"), entry.source("client-key")
    if key is not None and certificate is None:
        raise entry.refused("has a client-key but no client-certificate")
    token = entry.text("token")
    if token is not None and not is_header(token):
        raise entry.refused(f"has an invalid token ({_OF_HEADERS})")
    plugin = entry.fields.get("exec")
    return UserEntry(
        str(entry),
        certificate,
        key,
        token,
        entry.path_of("tokenFile"),
        _plugin(entry, plugin) if plugin is not None and not is_null(plugin) else None,
        tuple(_impersonation(entry)),
    )


def _plugin(entry: Entry, part: Part) -> Entry:
    if not isinstance(part, Fields):
        raise entry.refused("has an exec that names no command")
    return Entry("exec of user", entry.name, entry.path, fields_of(part))


def _impersonation(entry: Entry) -> Iterable[tuple[str, str]]:
    user, uid = entry.text("as"), entry.text("as-uid")
    groups = entry.texts("as-groups")
    extra = entry.fields.get("as-user-extra")
    if extra is not None and not is_null(extra):
        raise NotSupported(f"{entry} has as-user-extra, which isn't supported; {MEND_IT}")
    if (uid or groups) and not user:
        raise entry.refused(
            'has "as-uid" or "as-groups" but not "as", the name of the user to act as'
        )
    headers = [("Impersonate-User", user), ("Impersonate-Uid", uid)]
    headers += [("Impersonate-Group", group) for group in groups]
    for name, value in headers:
        if value is not None:
            if not is_header(value):
                raise entry.refused(f"has an invalid value for {name} ({_OF_HEADERS})")
            yield name, value


def _proxy_url(entry: Entry) -> str | None:
    proxy_url = entry.text("proxy-url")
    if proxy_url is not None and not _is_address(_PROXY, proxy_url):
        raise NotSupported(
            f"{entry} has a proxy-url that is not an http:// or https:// address; {MEND_IT}"
        )
    return proxy_url


def _is_address(form: str, url: str) -> bool:
    found = re.fullmatch(form, url, re.ASCII)
    return found is not None and url.isprintable() and 0 < int(found["port"] or 1) < 1 << 16


def _extension(entry: Entry, name: str) -> Part | None:
    extensions = entry.fields.get("extensions")
    for each in extensions.items if isinstance(extensions, Items) else ():
        named = fields_of(each).get("name")
        if isinstance(named, Scalar) and named.text == name:
            return fields_of(each).get("extension")
    return None


def is_null(part: Part) -> bool:
    """Whether a field says nothing."""
    return isinstance(part, Scalar) and part.is_null


def _is_empty(part: Part) -> bool:
    return isinstance(part, Scalar) and (part.is_null or not part.text)


def is_encodable(text: str) -> bool:
    """Whether a text can be written at all: JSON has halves of characters, too."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_header(text: str) -> bool:
    """Whether a text can be sent as (the end of) a header."""
    return text.isascii() and text.isprintable() and text.strip(" ") == text != ""


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

    def context(self, name: str | None) -> Entry:
        """A context, by name; None for the current one.

        Raises:
            InvalidRequest: There is none.
            CorruptState: There are no contexts.
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
                "name an existing one in the address, like kubernetes://namespace?context=name"
            )
        return entry

    def cluster(self, context: Entry) -> ClusterEntry:
        """Where the cluster of a context is.

        Raises:
            CorruptState: It isn't there, or isn't what a cluster should be.
        """
        name = context.text("cluster")
        if name is None:
            raise context.refused("names no cluster")
        return read_cluster(self._entry("cluster", name, self.clusters, context))

    def user(self, context: Entry) -> UserEntry:
        """Return the user of a context.

        Raises:
            CorruptState: It isn't there, or isn't what a user should be.
            NotSupported: It says so in a way that isn't known here.
        """
        name = context.text("user")
        if name is None:
            return UserEntry(found_in(context.name, self.paths))
        return read_user(self._entry("user", name, self.users, context))

    def _entry(self, kind: str, name: str, entries: dict[str, Entry], context: Entry) -> Entry:
        if name not in entries:
            raise CorruptState(
                f'{found_in(context.name, self.paths)} names the {kind} "{printable(name)}", which '
                f"doesn't exist; {MEND_IT}"
            )
        return entries[name]

    def _meant(self, name: str) -> str:
        near = nearest(name, list(self.contexts))
        return f'; did you mean "{printable(near)}"?' if near else ""

    @property
    def _files(self) -> str:
        return f"kubeconfig {printable(':'.join(self.paths), longest=500)}"


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
        for_another: Cache the content for the next reader, and only for that one.
        is_recorded: They were chosen before, and the variable may name others by now.

    Raises:
        FileUnreadable: One isn't there, or may not be read.
        CorruptState: One isn't a kubeconfig.
        NotSupported: One is YAML, and nothing here can read that.
    """
    there = paths if all_there else [path for path in paths if os.path.exists(path)]
    if not there:
        shown = printable(", ".join(paths), longest=500)
        advice = f"{named_by} must name an existing kubeconfig"
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
    if merged.current or not isinstance(current, Scalar) or _is_empty(current):
        return merged
    return merged._replace(current=current.text)


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
        raise CorruptState(f"{error}; {file.named_by} must name a kubeconfig") from error
    if is_null(document):
        return {}  # as kubectl has it
    if not isinstance(document, Fields):
        raise file.refused("is not a kubeconfig", "is one")
    return fields_of(document)


def _entries(file: NamedFile, top: dict[str, Part], name: str) -> Iterator[Entry]:
    """The entries of a list, whose items are like ``{name: …, cluster: {…}}``."""
    part = top.get(name)
    if part is None or is_null(part):
        return
    if not isinstance(part, Items):
        raise file.refused(f"has {name} that aren't a list", "is a kubeconfig")
    kind = name.removesuffix("s")
    for number, item in enumerate(part.items):
        fields = fields_of(item)
        entry_name, content = fields.get("name"), fields.get(kind)
        if not isinstance(entry_name, Scalar) or not entry_name.text:
            raise file.refused(f"has {name}[{number}] without a name", "is a kubeconfig")
        entry = Entry(kind, entry_name.text, file.path, fields_of(content))
        if content is not None and not isinstance(content, Fields) and not is_null(content):
            raise entry.refused("is not a mapping of fields to values")
        yield entry


def fields_of(part: Part | None) -> dict[str, Part]:
    """Return the fields of a mapping by their names; none of any other part."""
    return {key.text: value for key, value in part.pairs} if isinstance(part, Fields) else {}
