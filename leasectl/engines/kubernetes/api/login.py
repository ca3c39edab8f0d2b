"""Credentials for requests, renewed when files or plugins change them.

Certificates and tokens are replaced while processes go on: a pod's token each hour. So the files
are looked at before each request, and while they can't be used the last that could be is.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.kubernetes.api.access import Access
from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.errors import LeaseError, NotAllowed
from leasectl.http.settings import NamedFile, read_token
from leasectl.http.tls import Pem, PemTls, Trust, look_at, pem_context
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.api.credentials import Plugin, PluginCredential


_POD = "the pod's service account"


class Found(NamedTuple):
    """What files say at one time.

    Args:
        server, found, who, server_name, proxy_url: As `Access` has them.
        pems: Whom to trust, and what to show; None without TLS.
        headers: To be sent with each request, beside those of a token.
        token: To be sent with each request; None for none.
        plugin: The program that has one, or a certificate; None for none.
        files: What all that was read from.
    """

    server: str
    found: str
    who: str
    pems: PemTls | None = None
    headers: tuple[tuple[str, str], ...] = ()
    token: str | None = None
    plugin: Plugin | None = None
    server_name: str | None = None
    proxy_url: str | None = None
    files: tuple[str, ...] = ()


def read_choice(choice: ClusterChoice) -> Found:
    """Read the files that a choice names, as they are now.

    Raises:
        LeaseError: They can't be used.
    """
    return _read_pod(choice) if choice.service_account else _read_kubeconfig(choice)


def _read_pod(choice: ClusterChoice) -> Found:
    token_file = os.path.join(choice.service_account, "token")
    ca_file = os.path.join(choice.service_account, "ca.crt")
    ca = NamedFile("CA file", ca_file, _POD)
    return Found(
        choice.server,
        choice.found,
        f"the token in {token_file}",
        PemTls(Pem(ca.read(), str(ca), f"{_POD} must have one that does")),
        token=read_token(token_file, named_by=_POD),
        files=(token_file, ca_file),
    )


def _read_kubeconfig(choice: ClusterChoice) -> Found:
    from leasectl.engines.kubernetes.api.kubeconfig import found_in, read_kubeconfigs

    merged = read_kubeconfigs(
        choice.kubeconfigs, named_by="LEASECTL_KUBECONFIG", all_there=False, is_recorded=True
    )
    context = merged.context(choice.context)
    cluster, user = merged.cluster(context), merged.user(context)
    sources = (cluster.ca, user.certificate, user.key)
    ca, certificate, key = (None if each is None else each.read() for each in sources)
    token, who, plugin = user.token, f"the token or certificate of {user.label}", None
    if user.token_file is not None:
        token = read_token(user.token_file, named_by=f"tokenFile of {user.label}")
        who = f"the token in {user.token_file}"
    if user.plugin is not None and token is None:  # a token counts more, as for kubectl
        from leasectl.engines.kubernetes.api.credentials import read_plugin

        plugin = read_plugin(user.plugin, cluster, ca)
        who = f"what {plugin.label} printed"
    paths = (*choice.kubeconfigs, *(each.path for each in sources if each), user.token_file)
    is_secure = cluster.server.startswith("https:")
    return Found(
        cluster.server,
        found_in(context.name, choice.kubeconfigs),
        who,
        PemTls(ca, certificate, key, cluster.is_verified) if is_secure else None,
        user.headers,
        token,
        plugin,
        cluster.server_name,
        cluster.proxy_url,
        tuple(path for path in paths if path),
    )


# What tells of each file whether it is the same.
_Look = tuple[tuple[int, ...], ...]


class FileLogin:
    """The access to a cluster that was chosen. Threads may share it.

    Args:
        choice: Which cluster, and as whom.
        clock: Where times come from.
    """

    def __init__(self, choice: ClusterChoice, *, clock: Clock) -> None:
        self._choice = choice
        self._clock = clock
        self._lock = threading.Lock()
        # Under the lock, which is held while a program is asked: all need what it says.
        self._found: Found | None = None
        self._look: _Look = ()
        self._plugin: PluginCredential | None = None
        self._trusted: tuple[PemTls, Trust] | None = None

    def current(self, seconds: float) -> Access:
        """Implements `Login.current`."""
        with self._lock:
            return self._access(self._current_files(), seconds)

    def renewed(self, refused: Access, seconds: float) -> Access | None:
        """Implements `Login.renewed`."""
        with self._lock:
            if self._access(self._current_files(), seconds) == refused:
                self._found = self._read()
                if self._plugin is not None:
                    self._plugin.forget()
            access = self._access(self._current_files(), seconds)
            return None if access == refused else access

    def _current_files(self) -> Found:
        """What the files say, or said last; with the lock held."""
        if self._found is None or _look_at(self._found) != self._look:
            try:
                self._found = self._read()
            except LeaseError:
                if self._found is None:
                    raise
        return self._found

    def _read(self) -> Found:
        found = read_choice(self._choice)
        if found.server != self._choice.server:
            raise NotAllowed(
                f"{found.found} now means {found.server} instead of {self._choice.server}; "
                "restore the kubeconfig that named the latter"
            )
        if found.pems is not None and found.plugin is None:
            self._trust(found.pems)
        self._look = _look_at(found)
        if found.plugin is None:
            self._plugin = None
        elif self._plugin is None or self._plugin.plugin != found.plugin:
            from leasectl.engines.kubernetes.api.credentials import PluginCredential

            kept = dict(self._choice.environment)
            self._plugin = PluginCredential(found.plugin, kept, self._clock)
        return found

    def _access(self, found: Found, seconds: float) -> Access:
        """What a request needs, with what the program says; with the lock held."""
        token, pems = found.token, found.pems
        if self._plugin is not None:
            credential = self._plugin.current(seconds)
            token = credential.token
            if pems is not None and credential.certificate is not None:
                pems = pems._replace(certificate=credential.certificate, key=credential.key)
        return Access(
            server=found.server,
            found=found.found,
            who=found.who,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            more_headers=found.headers,
            trust=None if pems is None else self._trust(pems),
            server_name=found.server_name,
            proxy_url=found.proxy_url,
        )

    def _trust(self, pems: PemTls) -> Trust:
        """The same for the same: connections of another are not used any more.

        Raises:
            CorruptState: There is none that could be made of it.
        """
        if self._trusted is None or self._trusted[0] != pems:
            trust = Trust(partial(pem_context, pems), ())
            trust.context()
            self._trusted = pems, trust
        return self._trusted[1]


def _look_at(found: Found) -> _Look:
    return tuple(map(look_at, found.files))


def open_api(
    choice: ClusterChoice,
    *,
    clock: Clock,
    deadline_seconds: float = 10.0,
    attempt_seconds: float = 4.0,
    busy_seconds: float | None = None,
    rest_seconds: float = 0.0,
    pause: Callable[[float], object] = time.sleep,
) -> Api:
    """Open a cluster's API; nothing is asked of it yet, and no file is read.

    Args:
        choice: As `choose` made it of an address, or `parse_choice` read it from a record.
        clock, deadline_seconds, attempt_seconds, busy_seconds, rest_seconds, pause: As `Api` has
            them.
    """
    return Api(
        FileLogin(choice, clock=clock),
        clock=clock,
        deadline_seconds=deadline_seconds,
        attempt_seconds=attempt_seconds,
        busy_seconds=busy_seconds,
        rest_seconds=rest_seconds,
        pause=pause,
    )
