"""Run credential plugins that a kubeconfig names.

See https://kubernetes.io/docs/reference/config-api/client-authentication.v1/.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from leasectl.engines.kubernetes.api.entries import MEND_IT, ClusterEntry, Entry, is_null
from leasectl.errors import NotSupported
from leasectl.http.tls import Pem
from leasectl.text.documents import Fields, Items, Part, Scalar
from leasectl.text.wording import printable

_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_FIELDS = frozenset(
    (
        *("apiVersion", "command", "args", "env", "installHint"),
        *("provideClusterInfo", "interactiveMode"),
    )
)
_MODES = (None, "Never", "IfAvailable")
# More than that doesn't fit into a variable; few aliases of YAML can stand for any number.
_MOST_PARTS = 50_000


class Plugin(NamedTuple):
    """A program, and what it is given. Compared by what it is.

    Args:
        label: It, for messages.
        path: Of the program, or its name, which is looked up.
        args: What it is given.
        environment: Its variables, beside those that this process has.
        version: The form in which it is asked and answers.
        hint: What is to be done where it isn't there, in words of the kubeconfig's author.
    """

    label: str
    path: str
    args: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    version: str
    hint: str


class _TooMuch(Exception):
    """A program can't be told so much."""


def read_plugin(entry: Entry, cluster: ClusterEntry, ca: Pem | None) -> Plugin:
    """Read what a kubeconfig says of a program; it isn't asked.

    Args:
        entry: The ``exec`` of a user.
        cluster: Where it is to be let in.
        ca: Whom to trust there.

    Raises:
        CorruptState: It isn't what it should be.
        NotSupported: It says something that isn't known here.
    """
    for field in entry.fields:
        if field not in _FIELDS:
            raise NotSupported(
                f'{entry} has "{printable(field)}", which isn\'t known here; {MEND_IT}'
            )
    version, command = entry.text("apiVersion"), entry.text("command")
    if version not in _VERSIONS:
        raise NotSupported(
            f"{entry} has apiVersion {printable(version or 'none')}; {' and '.join(_VERSIONS)} are "
            f"known here; {MEND_IT}"
        )
    if not command:
        raise entry.refused("names no command")
    if entry.text("interactiveMode") not in _MODES:
        raise NotSupported(
            f"{entry} has an interactiveMode other than Never and IfAvailable, and there is nobody "
            f"who could be asked; {MEND_IT}"
        )
    if "/" in command:
        command = os.path.join(os.path.dirname(entry.path), command)
    given = dict(_environment(entry))
    try:
        given["KUBERNETES_EXEC_INFO"] = json.dumps(
            _asked(version, cluster if entry.truth("provideClusterInfo") else None, ca)
        )
    except _TooMuch:
        raise NotSupported(
            f"the exec extension of {cluster.label} is too large to pass to {entry}; {MEND_IT}"
        ) from None
    return Plugin(
        str(entry),
        command,
        tuple(entry.texts("args")),
        tuple(given.items()),
        version,
        entry.text("installHint") or "",
    )


def _environment(entry: Entry) -> list[tuple[str, str]]:
    part = entry.fields.get("env")
    found = []
    if part is not None and not is_null(part):
        for number, item in enumerate(part.items if isinstance(part, Items) else (part,)):
            pairs = item.pairs if isinstance(item, Fields) else ()
            fields = {key.text: value for key, value in pairs}
            name, value = fields.get("name"), fields.get("value")
            if not isinstance(name, Scalar) or not isinstance(value, Scalar):
                raise entry.refused(f"has an env[{number}] without a name and a value")
            if not name.text or "=" in name.text:
                raise entry.refused(f"has an env[{number}] with a name that can't be one")
            found.append((entry.handed_on("env", name.text), entry.handed_on("env", value.text)))
    return found


def _asked(version: str, cluster: ClusterEntry | None, ca: Pem | None) -> object:
    """What the program is told."""
    spec: dict[str, object] = {"interactive": False}
    if cluster is not None:
        known = {
            "server": cluster.server,
            "tls-server-name": cluster.server_name,
            "insecure-skip-tls-verify": None if cluster.is_verified else True,
            "certificate-authority-data": ca and base64.b64encode(ca.content).decode(),
            "proxy-url": cluster.proxy_url,
            "config": _config(cluster),
        }
        spec["cluster"] = {name: value for name, value in known.items() if value is not None}
    return {"apiVersion": version, "kind": "ExecCredential", "spec": spec}


def _config(cluster: ClusterEntry) -> Any:
    part = cluster.exec_config
    return None if part is None else _plain(part, iter(range(_MOST_PARTS)))


def _plain(part: Part, left: Iterator[int]) -> Any:
    """A part as JSON has it."""
    if next(left, None) is None:
        raise _TooMuch
    if isinstance(part, Items):
        return [_plain(each, left) for each in part.items]
    if isinstance(part, Fields):
        return {key.text: _plain(value, left) for key, value in part.pairs}
    if not part.plain:
        return part.text
    if part.is_null:
        return None
    try:
        return json.loads(part.text)  # numbers, true and false
    except ValueError:
        return part.text
