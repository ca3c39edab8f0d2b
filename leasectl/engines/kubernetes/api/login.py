"""Credentials for requests, renewed when files or plugins change them.

Certificates and tokens are replaced while processes go on: a pod's token each hour. So the files
are looked at before each request, and while they can't be used the last that could be is.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from leasectl.engines.kubernetes.api.access import Access
from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.engines.kubernetes.api.found import Found, read_choice
from leasectl.errors import LeaseError, NotAllowed
from leasectl.http.tls import PemTls, Trust, look_at, pem_context
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.api.credentials import PluginCredential

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
                f"{found.found} means {found.server} by now, and what is asked about is at "
                f"{self._choice.server}; put back the kubeconfig that named that"
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
