"""What the chosen files say now: server, CA, credentials.

Nothing is asked of anybody.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.http.settings import NamedFile, read_token
from leasectl.http.tls import Pem, PemTls

if TYPE_CHECKING:
    from leasectl.engines.kubernetes.api.plugins import Plugin
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
        from leasectl.engines.kubernetes.api.plugins import read_plugin

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
