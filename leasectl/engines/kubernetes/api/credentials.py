"""Run the credential plugins that a kubeconfig names, and keep what they print.

A plugin prints a token or a certificate, perhaps with its end. This process uses it until that end,
or until it is refused. A plugin can't ask a person anything. Source:
https://kubernetes.io/docs/reference/config-api/client-authentication.v1/.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from leasectl.engines.kubernetes.api.kubeconfig import (
    MEND_IT,
    ClusterEntry,
    Entry,
    fields_of,
    is_header,
    is_null,
)
from leasectl.errors import BackendUnreachable, LeaseError, NotAllowed, NotSupported
from leasectl.http.tls import Pem
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock
from leasectl.system.program import Ended, run_program
from leasectl.text.documents import Fields, Items, Part, Scalar
from leasectl.text.durations import NoTime, format_seconds, parse_moment
from leasectl.text.properties import read_json
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
_LONGEST_BYTES = 1 << 20
# What ends in a moment is as good as ended: the request takes time as well.
_MARGIN_SECONDS = 5.0
# No pause is longer than the failure has lasted, so a lease that could be renewed again still is.
_BACKOFF = Backoff(first_seconds=1.0, longest_seconds=15.0)
_FRACTION = re.compile(r"\.[0-9]+")


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
            raise NotSupported(f'{entry} has the unknown field "{printable(field)}"; {MEND_IT}')
    version, command = entry.text("apiVersion"), entry.text("command")
    if version not in _VERSIONS:
        raise NotSupported(
            f"{entry} has apiVersion {printable(version or 'none')}; supported: "
            f"{', '.join(_VERSIONS)}; {MEND_IT}"
        )
    if not command:
        raise entry.refused("names no command")
    if entry.text("interactiveMode") not in _MODES:
        raise NotSupported(
            f"{entry} has an interactiveMode other than Never and IfAvailable, but leasectl can't "
            f"ask anybody; {MEND_IT}"
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
            fields = fields_of(item)
            name, value = fields.get("name"), fields.get("value")
            if not isinstance(name, Scalar) or not isinstance(value, Scalar):
                raise entry.refused(f"has an env[{number}] without a name and a value")
            if not name.text or "=" in name.text:
                raise entry.refused(f"has an env[{number}] with an invalid name")
            found.append((entry.handed_on("env", name.text), entry.handed_on("env", value.text)))
    return found


def _asked(version: str, cluster: ClusterEntry | None, ca: Pem | None) -> object:
    """What the program is told."""
    spec: dict[str, object] = {"interactive": False}
    if cluster is not None:
        config = cluster.exec_config
        known = {
            "server": cluster.server,
            "tls-server-name": cluster.server_name,
            "insecure-skip-tls-verify": None if cluster.is_verified else True,
            "certificate-authority-data": ca and base64.b64encode(ca.content).decode(),
            "proxy-url": cluster.proxy_url,
            "config": config and _plain(config, iter(range(_MOST_PARTS))),
        }
        spec["cluster"] = {name: value for name, value in known.items() if value is not None}
    return {"apiVersion": version, "kind": "ExecCredential", "spec": spec}


def _plain(part: Part, left: Iterator[int]) -> Any:
    """Return a part as a JSON value."""
    if next(left, None) is None:
        raise _TooMuch
    if isinstance(part, Items):
        return [_plain(each, left) for each in part.items]
    if isinstance(part, Fields):
        return {name: _plain(value, left) for name, value in fields_of(part).items()}
    if not part.plain:
        return part.text
    if part.is_null:
        return None
    try:
        return json.loads(part.text)  # numbers, true and false
    except ValueError:
        return part.text


class Credential(NamedTuple):
    """What a program has printed.

    Args:
        token: A bearer token; None for none.
        certificate: With its key; None for none.
        key: Its key.
        until: When it ends, on the elapsed clock; None if the plugin doesn't say.
    """

    token: str | None
    certificate: Pem | None
    key: Pem | None
    until: float | None


class PluginCredential:
    """The credential of one program, until it ends or a server doesn't take it.

    A program that gives none, or one that isn't taken, is asked again after pauses: many may want
    one all the time, and a program may take seconds, or count how often it is asked.

    Args:
        plugin: The program.
        kept_environment: Variables as they were when the cluster was chosen.
        clock: Where times come from.
    """

    def __init__(self, plugin: Plugin, kept_environment: Mapping[str, str], clock: Clock) -> None:
        self.plugin = plugin
        self._kept_environment = kept_environment
        self._clock = clock
        self._credential: Credential | None = None
        self._pauses = Pauses(_BACKOFF)
        self._asks_again_at = 0.0  # not before that on the elapsed clock, for no better answer
        self._failure: LeaseError | None = None

    def current(self, seconds: float) -> Credential:
        """The credential; the program is asked where there is none that is good.

        Args:
            seconds: How long it may take.

        Raises:
            NotAllowed: It gives none.
            BackendUnreachable: Or not in time.
        """
        known, now = self._credential, self._clock.elapsed()
        if known is not None and (known.until is None or now < known.until):
            return known
        if self._failure is not None and now < self._asks_again_at:
            raise self._failure.with_traceback(None)
        try:
            self._credential = known = self._ask(seconds)
        except LeaseError as failure:
            self._failure = failure
            self._asks_again_at = self._clock.elapsed() + self._pauses.next()
            raise
        if self._failure is not None:
            self._failure = None
            self._pauses.begin_anew()
        return known

    def forget(self) -> None:
        """Drop the credential, as a server rejects it; the next call asks the program again."""
        now = self._clock.elapsed()
        if now < self._asks_again_at:
            return  # it would say the same
        if now > self._asks_again_at + _BACKOFF.longest_seconds:
            self._pauses.begin_anew()
        self._asks_again_at = now + self._pauses.next()
        self._credential = None

    def _ask(self, seconds: float) -> Credential:
        plugin = self.plugin
        environment = {**os.environ, **self._kept_environment, **dict(plugin.environment)}
        path = _found(plugin, environment)
        try:
            ended = run_program(
                path,
                (plugin.path, *plugin.args),
                environment,
                seconds=seconds,
                longest_bytes=_LONGEST_BYTES,
            )
        except OSError as error:
            raise _refused(plugin, f"can't be started: {error.strerror}") from error
        if ended.why == "time":
            raise BackendUnreachable(
                f"{plugin.label} printed no credential within {format_seconds(seconds)}"
                f"{_said(ended)}; {_by_hand(plugin)}"
            )
        if ended.why == "length":
            raise _refused(plugin, f"printed more than {_LONGEST_BYTES >> 20} MiB")
        if ended.why == "signal":
            raise _refused(plugin, f"was ended by signal {ended.number}{_said(ended)}")
        if ended.number:
            raise _refused(plugin, f"exited with {ended.number}{_said(ended)}")
        return _credential(plugin, ended, self._clock)


def _found(plugin: Plugin, environment: Mapping[str, str]) -> str:
    import shutil

    shown = printable(plugin.path, longest=200)
    path = shutil.which(plugin.path, path=environment.get("PATH"))
    if path is None:
        advice = printable(plugin.hint, longest=300) if plugin.hint else MEND_IT
        why = (
            "can't be executed"
            if "/" in plugin.path and os.path.isfile(plugin.path)
            else "can't be found"
        )
        raise NotAllowed(f'{plugin.label} names "{shown}", which {why}; {advice}')
    if not os.path.isabs(path):  # whoever may write there could say what we run
        raise NotAllowed(
            f'{plugin.label} names "{shown}", which PATH finds only in the '
            f"current directory; {MEND_IT}"
        )
    return path


def _credential(plugin: Plugin, ended: Ended, clock: Clock) -> Credential:
    """Read what it has printed; messages say nothing of that."""
    try:
        said = read_json(ended.printed)
    except (ValueError, RecursionError):
        raise _refused(plugin, f"printed something other than JSON{_said(ended)}") from None
    if not isinstance(said, dict) or said.get("kind") != "ExecCredential":
        raise _refused(plugin, "didn't print an ExecCredential")
    if said.get("apiVersion") != plugin.version:
        raise _refused(
            plugin,
            f"printed an ExecCredential of {printable(str(said.get('apiVersion')))} instead "
            f"of one of {plugin.version}",
        )
    status = said.get("status")
    status = status if isinstance(status, dict) else {}
    token, certificate, key = (
        _text(plugin, status, field)
        for field in ("token", "clientCertificateData", "clientKeyData")
    )
    if token is None and certificate is None:
        raise _refused(plugin, f"printed neither a token nor a certificate{_said(ended)}")
    if (certificate is None) != (key is None):
        raise _refused(
            plugin, "printed a certificate without a key, or a key without a certificate"
        )
    if token is not None and not is_header(token):
        raise _refused(plugin, "printed an invalid token")
    return Credential(
        token,
        _pem(plugin, certificate),
        _pem(plugin, key),
        _until(plugin, status.get("expirationTimestamp"), clock),
    )


def _pem(plugin: Plugin, text: str | None) -> Pem | None:
    if text is None:
        return None
    return Pem(text.encode(), f"what {plugin.label} printed", _by_hand(plugin))


def _text(plugin: Plugin, status: Mapping[str, object], field: str) -> str | None:
    value = status.get(field)
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise _refused(plugin, f"printed a {field} that is not text")
    return value.strip()


def _until(plugin: Plugin, timestamp: object, clock: Clock) -> float | None:
    if timestamp is None:
        return None
    text = _FRACTION.sub("", str(timestamp))
    try:
        if text[4:5] != "-":
            raise NoTime(text)
        ends = parse_moment(text, 0.0)
    except NoTime:
        raise _refused(plugin, "printed an expirationTimestamp that is not a time") from None
    now = clock.wall()
    if ends <= now:
        raise _refused(
            plugin,
            f"printed a credential that ended {format_seconds(now - ends)} ago, by this machine's "
            "clock",
        )
    return clock.elapsed() + max(ends - now - _MARGIN_SECONDS, (ends - now) / 2)


def _said(ended: Ended) -> str:
    """The last line that it wrote for people."""
    lines = [line.strip() for line in ended.said.splitlines() if line.strip()]
    return f" ({printable(lines[-1], longest=200)})" if lines else ""


def _refused(plugin: Plugin, what: str) -> NotAllowed:
    return NotAllowed(f"{plugin.label} {what}; {_by_hand(plugin)}")


def _by_hand(plugin: Plugin) -> str:
    """What to do next: at a terminal it may ask for what it needs. Arguments may be secret."""
    return f"try it by hand: {printable(plugin.path, longest=200)}"
