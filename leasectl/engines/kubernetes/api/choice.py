"""Choose the cluster and user once, and record the choice with the handle.

In a step of CI ``KUBECONFIG`` is as a rule that of the cluster under test, appears half-way, and
changes. So an address or ``LEASECTL_KUBECONFIG`` comes first, then the pod that we are in, and only
then what kubectl would take.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Literal, NamedTuple

from leasectl.engines.kubernetes.api.address import KubernetesAddress, found_in, is_namespace
from leasectl.errors import CorruptState, InvalidRequest
from leasectl.http.http1 import parse_url
from leasectl.text.wording import printable

# Where Kubernetes puts what a pod needs, unless its spec says that it doesn't.
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_DEFAULT_NAMESPACE = "default"
_LONGEST_NAMESPACE_BYTES = 1024
# What programs that say as whom go by, as far as it is no secret.
_KEPT_FOR_PROGRAMS = (
    *("HOME", "PATH", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
    *("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ROLE_ARN", "AWS_CONFIG_FILE"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_CONFIG_DIR"),
    *("CLOUDSDK_CONFIG", "CLOUDSDK_ACTIVE_CONFIG_NAME", "GOOGLE_APPLICATION_CREDENTIALS"),
)

# By what it was chosen.
ChosenBy = Literal["address", "LEASECTL_KUBECONFIG", "pod", "KUBECONFIG", "HOME"]


class ClusterChoice(NamedTuple):
    """A cluster, and as whom: where that is written, with no secret of it.

    Args:
        chosen_by: What named it.
        namespace: Where the objects are.
        server: The address of its API. A recorded choice means this cluster, even if the context
            names another by then.
        kubeconfigs: The paths of the files that are merged; none in a pod.
        context: The entry of theirs; empty in a pod.
        service_account: The folder of the service account; empty where there are kubeconfigs.
        is_verified: Whether the server has to show a certificate that is trusted.
        environment: Variables for the program that says as whom, where there is one: names and
            paths. What keeps a lease for others has none of theirs.
    """

    chosen_by: ChosenBy
    namespace: str
    server: str
    kubeconfigs: tuple[str, ...] = ()
    context: str = ""
    service_account: str = ""
    is_verified: bool = True
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def found(self) -> str:
        """Where it is written, for messages: ``context "ci" in /path``."""
        if self.service_account:
            return "the service account of this pod"
        return found_in(self.context, self.kubeconfigs)

    @property
    def why(self) -> str:
        """Why it was chosen, for people."""
        reasons: dict[ChosenBy, str] = {
            "address": "the address names its kubeconfig",
            "LEASECTL_KUBECONFIG": "LEASECTL_KUBECONFIG names its kubeconfig",
            "pod": "this is a pod, and neither the address nor LEASECTL_KUBECONFIG names another",
            "KUBECONFIG": "KUBECONFIG names its kubeconfig, as for kubectl",
            "HOME": "it is the kubeconfig that kubectl would use",
        }
        return reasons[self.chosen_by]

    @property
    def warning(self) -> str:
        """The warning about a choice; empty for none."""
        if self.server.startswith("http:") and not _is_here(self.server):
            why = "has an address without TLS"
        elif not self.is_verified:
            why = "has insecure-skip-tls-verify"
        else:
            return ""
        return (
            f"{self.found} {why}: anyone on the network path to {self.server} could read and "
            "modify traffic and impersonate you"
        )


def encode_choice(choice: ClusterChoice) -> str:
    """Write a choice as one line; `parse_choice` reads it back."""
    return json.dumps(choice._asdict(), separators=(",", ":"))


def parse_choice(text: str) -> ClusterChoice:
    """Read what `encode_choice` wrote.

    Raises:
        CorruptState: It didn't.
    """
    try:
        said = json.loads(text)
        said["kubeconfigs"] = tuple(map(str, said["kubeconfigs"]))
        said["environment"] = tuple((str(name), str(value)) for name, value in said["environment"])
        return ClusterChoice(**said)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptState(
            "the lease's record of its Kubernetes cluster is damaged, or was written by a newer "
            "leasectl"
        ) from error


def choose(address: KubernetesAddress, environment: Mapping[str, str]) -> ClusterChoice:
    """Choose the cluster that an address means here and now; nothing is asked of it.

    Args:
        address: As `parse_kubernetes_url` read it.
        environment: The variables of this process.

    Raises:
        FileUnreadable: A file that was named isn't there, or may not be read.
        InvalidRequest: Nothing names a cluster, or there is no such context.
        CorruptState: A kubeconfig isn't one.
    """
    chosen_by, paths = _kubeconfigs(address, environment)
    if chosen_by == "pod":
        return _of_pod(address, environment)
    from leasectl.engines.kubernetes.api.kubeconfig import read_kubeconfigs

    is_named = chosen_by in ("address", "LEASECTL_KUBECONFIG")
    merged = read_kubeconfigs(
        paths, named_by=_named_by(chosen_by), all_there=is_named, for_another=True
    )
    chosen = merged.context(address.context)
    cluster, user = merged.cluster(chosen), merged.user(chosen)
    namespace = address.namespace or chosen.text("namespace") or _DEFAULT_NAMESPACE
    kept = [(name, environment[name]) for name in _KEPT_FOR_PROGRAMS if name in environment]
    return ClusterChoice(
        chosen_by,
        _checked_namespace(namespace),
        cluster.server,
        paths,
        chosen.name,
        is_verified=cluster.is_verified or cluster.server.startswith("http:"),
        environment=tuple(kept) if user.plugin is not None else (),
    )


def kubectls_paths(environment: Mapping[str, str]) -> tuple[ChosenBy, tuple[str, ...]] | None:
    """The kubeconfigs that kubectl would read; None for none."""
    listed = _paths(environment.get("KUBECONFIG", ""))
    if listed:
        return "KUBECONFIG", listed
    home = environment.get("HOME", "")
    if not home:
        return None
    usual = os.path.join(os.path.abspath(home), ".kube", "config")
    return ("HOME", (usual,)) if os.path.exists(usual) else None


def pod_server(environment: Mapping[str, str]) -> str | None:
    """The address of the API of the cluster whose pod this is; None where it is no pod with one."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port or not os.path.exists(os.path.join(SERVICE_ACCOUNT, "token")):
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _kubeconfigs(
    address: KubernetesAddress, environment: Mapping[str, str]
) -> tuple[ChosenBy, tuple[str, ...]]:
    if address.kubeconfig:
        return "address", (os.path.abspath(address.kubeconfig),)
    own = _paths(environment.get("LEASECTL_KUBECONFIG", ""))
    if own:
        return "LEASECTL_KUBECONFIG", own
    # A service account has no contexts: whoever names one means a kubeconfig.
    if not address.context and pod_server(environment):
        return "pod", ()
    found = kubectls_paths(environment)
    if found is None:
        raise InvalidRequest(
            "no Kubernetes cluster: there is no kubeconfig, and this is not a pod with a service "
            "account; name a kubeconfig in LEASECTL_KUBECONFIG"
        )
    return found


def _is_here(server: str) -> bool:
    """Return whether a server is on this machine."""
    import ipaddress

    host = parse_url(server).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _paths(listed: str) -> tuple[str, ...]:
    """The files of a list as kubectl has them: an empty part is none, one that is twice is one."""
    return tuple(dict.fromkeys(os.path.abspath(each) for each in listed.split(":") if each))


def _named_by(chosen_by: ChosenBy) -> str:
    names: dict[ChosenBy, str] = {
        "address": "the address's kubeconfig",
        "HOME": "LEASECTL_KUBECONFIG",
    }
    return names.get(chosen_by, chosen_by)


def _of_pod(address: KubernetesAddress, environment: Mapping[str, str]) -> ClusterChoice:
    server = pod_server(environment)
    assert server is not None
    namespace = address.namespace or _own_namespace()
    return ClusterChoice(
        "pod", _checked_namespace(namespace), server, service_account=SERVICE_ACCOUNT
    )


def _own_namespace() -> str:
    try:
        with open(os.path.join(SERVICE_ACCOUNT, "namespace"), encoding="utf-8") as file:
            return file.read(_LONGEST_NAMESPACE_BYTES).strip() or _DEFAULT_NAMESPACE
    except (OSError, ValueError):
        return _DEFAULT_NAMESPACE


def _checked_namespace(namespace: str) -> str:
    if not is_namespace(namespace):
        raise InvalidRequest(
            f'invalid namespace "{printable(namespace)}"; name another in the URL, like '
            "kubernetes://namespace"
        )
    return namespace
