"""The access to a cluster: which server, and credentials that are renewed when files change.

Certificates and tokens are replaced while processes go on: a pod's token each hour. So the files
are looked at before each request, and while they can't be used the last that could be is.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Union

from leasectl.engines.kubernetes.api.address import found_in
from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.engines.kubernetes.api.refusals import NotAuthenticated, NotPermitted
from leasectl.errors import AccessRefused, CorruptState, InvalidRequest, LeaseError, NotAllowed
from leasectl.http.exchange import Client
from leasectl.http.messages import Call
from leasectl.http.no_answer import OTHER_TIME, NoAnswer
from leasectl.http.settings import NamedFile, read_token
from leasectl.http.tls import Pem, PemTls, Trust, look_at, pem_context
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.api.credentials import Plugin, PluginCredential

_POD = "the pod's service account"
# At each address that a name has, and again for TLS, where a stopped server hangs.
CONNECT_SECONDS = 3.0
# A list of many thousands of objects comes in pages; one object has 1.5 MiB at most.
LONGEST_ANSWER_BYTES = 64 << 20
_READY = "/readyz"

# Why we aren't let in.
Refusal = Union[NotAuthenticated, NotPermitted, NoAnswer]


class Access(NamedTuple):
    """The way to a cluster, and what to show there. Compared by what it is.

    Args:
        server: The address of its API, without a "/" at the end.
        found: Where that was found, for messages: ``context "ci" in /path``.
        who: What we show there, for messages: ``the token in /path``; no secret.
        headers: To be sent with each request.
        more_headers: The same, for those that come more than once.
        trust: For TLS; None without.
        server_name: Whose certificate it has to be, where not the address's own host.
        proxy_url: The HTTP proxy on the way; None for none.
    """

    server: str
    found: str
    who: str
    headers: Mapping[str, str] = {}
    more_headers: Sequence[tuple[str, str]] = ()
    trust: Trust | None = None
    server_name: str | None = None
    proxy_url: str | None = None

    @property
    def proxy(self) -> str:
        """The proxy, for messages: without a user and password that its URL may hold."""
        scheme, _, rest = (self.proxy_url or "").partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def new_client(self) -> Client:
        """A client whose connections lead there."""
        return Client(
            clock=Clock(),  # a server takes its time by this machine's, whatever ours is
            trust=self.trust,
            proxy_url=self.proxy_url,
            connect_seconds=CONNECT_SECONDS,
            longest_bytes=LONGEST_ANSWER_BYTES,
        )

    @property
    def route(self) -> object:
        """What is equal for two accesses whose requests may share a client."""
        return self.server, self.proxy_url, self.trust


def addressed(access: Access, call: Call) -> Call:
    """A request whose URL begins at the path, as it is sent to a server."""
    return call._replace(
        url=access.server + call.url,
        headers={**call.headers, **access.headers},
        more_headers=access.more_headers,
        server_name=access.server_name,
    )


def not_let_in(access: Access, refusal: Refusal) -> AccessRefused:
    """The error for a 401 or 403 that stays, or a connection that one of both sides doesn't want.

    In a 401, expired, damaged and foreign look the same.
    """
    if isinstance(refusal, NotPermitted):
        return AccessRefused(NotAllowed(f"{access.server}: {refusal}"))
    if isinstance(refusal, NotAuthenticated):
        return AccessRefused(
            NotAllowed(
                f"{access.server} rejects the credentials (401: {refusal}): {access.who} has "
                "expired, is damaged or belongs to another cluster; get a new one, or name another "
                "kubeconfig in LEASECTL_KUBECONFIG"
            )
        )
    advice = {
        "certificate": f"certificate-authority in {access.found} must be the CA of the server",
        "name": f"set tls-server-name in {access.found} to a name in its certificate",
        "time": OTHER_TIME,
        "ours": f"the server doesn't accept {access.who}",
        None: "",
    }[refusal.distrust]
    return AccessRefused(NotAllowed(f"{access.server}: {refusal}; {advice}"))


def is_ready(access: Access, client: Client, seconds: float, *, as_nobody: bool) -> bool:
    """Ask a server whether it is ready; where we may not ask that, it never says so.

    Args:
        access: To it.
        client: That leads there.
        seconds: How long it may take.
        as_nobody: Without what it didn't know us by.
    """
    call = Call(_READY, method="GET")
    shown = access._replace(headers={}, more_headers=()) if as_nobody else access
    try:
        return client.ask(addressed(shown, call), seconds=seconds).status == 200
    except NoAnswer:
        return False


class Found(NamedTuple):
    """The contents of the files that say who we are, at one time.

    Args:
        access: The access without a token and certificates.
        pems: Which certificates to trust and to show; None without TLS.
        token: The bearer token; None for none.
        plugin: The program that prints a token or a certificate; None for none.
        files: The files that were read.
    """

    access: Access
    pems: PemTls | None
    token: str | None
    plugin: Plugin | None = None
    files: tuple[str, ...] = ()

    @property
    def look(self) -> tuple[tuple[int, ...], ...]:
        """What tells whether a file has changed since it was read."""
        return tuple(map(look_at, self.files))


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
        Access(choice.server, choice.found, f"the token in {token_file}"),
        PemTls(Pem(ca.read(), str(ca), f"{_POD} must have a valid one")),
        read_token(token_file, named_by=_POD),
        files=(token_file, ca_file),
    )


def _read_kubeconfig(choice: ClusterChoice) -> Found:
    from leasectl.engines.kubernetes.api.kubeconfig import read_kubeconfigs

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
        Access(
            cluster.server,
            found_in(context.name, choice.kubeconfigs),
            who,
            more_headers=user.headers,
            server_name=cluster.server_name,
            proxy_url=cluster.proxy_url,
        ),
        PemTls(ca, certificate, key, cluster.is_verified) if is_secure else None,
        token,
        plugin,
        tuple(path for path in paths if path),
    )


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
        self._look: object = None  # of the files then
        self._plugin: PluginCredential | None = None
        self._trusted: tuple[PemTls, Trust] | None = None

    def current(self, seconds: float) -> Access:
        """Return the access; files are read again if they have changed.

        Args:
            seconds: How long a credential plugin may take.

        Raises:
            AccessRefused: There is none.
            BackendUnreachable: The plugin takes too long.
        """
        with self._lock, _refusing():
            return self._access(self._current_files(), seconds)

    def renewed(self, refused: Access, seconds: float) -> Access | None:
        """Return another access than one that the server rejects; None if there is no other.

        The arguments and errors are those of `current`.
        """
        with self._lock, _refusing():
            if self._access(self._current_files(), seconds) == refused:
                self._found = self._read()
                if self._plugin is not None:
                    self._plugin.forget()
            access = self._access(self._current_files(), seconds)
            return None if access == refused else access

    def _current_files(self) -> Found:
        """Return what the files say, or said before they became unusable; with the lock held."""
        if self._found is None or self._found.look != self._look:
            try:
                self._found = self._read()
            except LeaseError:
                if self._found is None:
                    raise
        return self._found

    def _read(self) -> Found:
        found = read_choice(self._choice)
        server = found.access.server
        if server != self._choice.server:
            raise NotAllowed(
                f"this lease is in the cluster {self._choice.server}, but {found.access.found} now "
                f"names {server}; restore the entry for {self._choice.server}"
            )
        if found.pems is not None and found.plugin is None:
            self._trust(found.pems)
        self._look = found.look
        if found.plugin is None:
            self._plugin = None
        elif self._plugin is None or self._plugin.plugin != found.plugin:
            from leasectl.engines.kubernetes.api.credentials import PluginCredential

            kept = dict(self._choice.environment)
            self._plugin = PluginCredential(found.plugin, kept, self._clock)
        return found

    def _access(self, found: Found, seconds: float) -> Access:
        """Return the access with the plugin's credential, if there is one; with the lock held."""
        token, pems = found.token, found.pems
        if self._plugin is not None:
            credential = self._plugin.current(seconds)
            token = credential.token
            if pems is not None and credential.certificate is not None:
                pems = pems._replace(certificate=credential.certificate, key=credential.key)
        return found.access._replace(
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            trust=None if pems is None else self._trust(pems),
        )

    def _trust(self, pems: PemTls) -> Trust:
        """Return the same object for equal certificates: connections made with others are closed.

        Raises:
            CorruptState: The certificates can't be used.
        """
        if self._trusted is None or self._trusted[0] != pems:
            trust = Trust(partial(pem_context, pems), ())
            trust.context()
            self._trusted = pems, trust
        return self._trusted[1]


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Raise AccessRefused for an error inside: nothing was asked of the server."""
    try:
        yield
    except (CorruptState, InvalidRequest, NotAllowed) as reason:
        raise AccessRefused(reason) from reason
