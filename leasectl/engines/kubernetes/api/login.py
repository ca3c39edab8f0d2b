"""What is shown to a cluster: made of files whenever they change.

Certificates and tokens are replaced while processes go on: a pod's token each hour. So the files
are looked at before each request, and while they can't be used the last that could be is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from leasectl.engines.kubernetes.api.access import Access
from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.errors import LeaseError, NotAllowed
from leasectl.http.pem import PemTls, pem_context
from leasectl.http.settings import read_token
from leasectl.http.trust import Trust

# What tells of each file whether it is the same.
_Look = tuple[tuple[int, ...], ...]


class Found(NamedTuple):
    """What files say at one time.

    Args:
        server, found, who, server_name, proxy_url: As `Access` has them.
        pems: Whom to trust, and what to show; None without TLS.
        headers: To be sent with each request; those of a token come before them.
        token: To be sent with each request; None for none.
        files: What all that was read from.
        warnings: What somebody should hear.
    """

    server: str
    found: str
    who: str
    pems: PemTls | None = None
    headers: tuple[tuple[str, str], ...] = ()
    token: str | None = None
    server_name: str | None = None
    proxy_url: str | None = None
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class FileLogin:
    """The access to a cluster that was chosen. Threads may share it.

    Args:
        choice: Which cluster, and as whom.
    """

    def __init__(self, choice: ClusterChoice) -> None:
        self._choice = choice
        self._lock = threading.Lock()
        # Under the lock:
        self._found: Found | None = None
        self._look: _Look = ()
        self._access: Access | None = None
        self._pems: PemTls | None = None

    def current(self, seconds: float) -> Access:
        """As `Login.current`."""
        with self._lock:
            if self._access is None or self._found is None or _look_at(self._found) != self._look:
                try:
                    self._read()
                except LeaseError:
                    if self._access is None:
                        raise
            assert self._access is not None
            return self._access

    def renewed(self, refused: Access, seconds: float) -> Access | None:
        """As `Login.renewed`."""
        with self._lock:
            if self._access == refused:
                self._read()
            return None if self._access == refused else self._access

    @property
    def warnings(self) -> tuple[str, ...]:
        """What somebody should hear of how it is done; empty before the first access."""
        with self._lock:
            return () if self._found is None else self._found.warnings

    def _read(self) -> None:
        """Read the files; with the lock held."""
        found = read_choice(self._choice)
        self._look = _look_at(found)
        if found.server != self._choice.server:
            raise NotAllowed(
                f"{found.found} means {found.server} by now, and what is asked about is at "
                f"{self._choice.server}; put back the kubeconfig that named that"
            )
        self._found = found
        self._access = self._access_of(found)

    def _access_of(self, found: Found) -> Access:
        before = self._access
        trust = None
        if found.pems is not None:
            keeps = before is not None and self._pems == found.pems
            trust = (
                before.trust if keeps and before else Trust(partial(pem_context, found.pems), ())
            )
        self._pems = found.pems
        headers: Mapping[str, str] = (
            {} if found.token is None else {"Authorization": f"Bearer {found.token}"}
        )
        return Access(
            server=found.server,
            found=found.found,
            who=found.who,
            headers=headers,
            more_headers=found.headers,
            trust=trust,
            server_name=found.server_name,
            proxy_url=found.proxy_url,
        )


def read_choice(choice: ClusterChoice) -> Found:
    """Read the files that a choice names, as they are now.

    Raises:
        LeaseError: They can't be used.
    """
    return _read_pod(choice) if choice.service_account else _read_kubeconfig(choice)


def _read_pod(choice: ClusterChoice) -> Found:
    from leasectl.engines.kubernetes.api.entries import Source

    token_file = os.path.join(choice.service_account, "token")
    ca_file = os.path.join(choice.service_account, "ca.crt")
    return Found(
        choice.server,
        choice.found,
        f"the token in {token_file}",
        PemTls(Source("the CA of this pod's service account", path=ca_file).read()),
        token=read_token(token_file, named_by="the pod's service account"),
        files=(token_file, ca_file),
    )


def _read_kubeconfig(choice: ClusterChoice) -> Found:
    from leasectl.engines.kubernetes.api.kubeconfig import found_in, read_kubeconfigs

    merged = read_kubeconfigs(choice.kubeconfigs, named_by="LEASECTL_KUBECONFIG", all_there=False)
    context = merged.context(choice.context)
    cluster, user = merged.cluster(context), merged.user(context)
    sources = (cluster.ca, user.certificate, user.key)
    ca, certificate, key = (None if each is None else each.read() for each in sources)
    token, who = user.token, f"what {user.label} has"
    if user.token_file is not None:
        token = read_token(user.token_file, named_by=f"tokenFile of {user.label}")
        who = f"the token in {user.token_file}"
    paths = (*choice.kubeconfigs, *(each.path for each in sources if each), user.token_file)
    is_secure = cluster.server.startswith("https:")
    return Found(
        cluster.server,
        found_in(context.name, choice.kubeconfigs),
        who,
        PemTls(ca, certificate, key, cluster.is_verified) if is_secure else None,
        user.headers,
        token,
        cluster.server_name,
        cluster.proxy_url,
        tuple(path for path in paths if path),
        ()
        if cluster.is_verified
        else (
            f"{cluster.label} says insecure-skip-tls-verify: whoever is "
            "on the way can read and change everything",
        ),
    )


def _look_at(found: Found) -> _Look:
    return tuple(map(_look_at_file, found.files))


def _look_at_file(path: str) -> tuple[int, ...]:
    try:
        stat = os.stat(path)
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
