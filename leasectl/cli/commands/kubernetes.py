"""``leasectl kubernetes``: print what `kubectl apply` needs."""

from __future__ import annotations

from leasectl.backends.kubernetes_manifest import (
    manifest_of,
    namespace_in,
    parse_counts,
    parse_patterns,
)
from leasectl.cli.command import new_command
from leasectl.cli.described import option
from leasectl.cli.groups import group
from leasectl.cli.maintenance_options import DEFAULT_NAMESPACE as OF_MAINTENANCE
from leasectl.cli.rendering.output import show
from leasectl.leases.opening import choose_backend
from leasectl.text.yaml_text import yaml_documents

_DEFAULT_ACCOUNT = "leasectl"
_DEFAULT_NAMESPACE = "default"


@new_command()
@option(
    "--namespace N",
    "Where the pools are. Default: N if LEASECTL_BACKEND is kubernetes://N; else, with "
    '--maintenance, "leasectl-maintenance"; else "default".',
    type=str,
)
@option(
    "--service-account S",
    "The account that jobs use. It is created; for an existing account of another namespace, write "
    "N:S.",
    to="account",
    default=_DEFAULT_ACCOUNT,
    show_default=True,
)
@option(
    "--admin-account S",
    "Also create this account, for admins. Jobs then use the account of --service-account; a "
    "policy lets that account use pools, but not change them. Needs Kubernetes 1.30 or later.",
    to="admin",
)
@option("--maintenance", "Add the rights that leasectl maintenance needs, on all nodes and pods.")
@option(
    "--image IMAGE",
    "Add a Deployment of the controller, leasectl maintenance reconcile, with this image, "
    "which must contain leasectl. Needs --maintenance.",
)
@option(
    "--pool POOL=COUNT",
    "Add a pool with resources POOL--00, POOL--01 and so on; may be repeated.",
    to="pools",
    multiple=True,
)
@option(
    "--expect POOL=PATTERN",
    "Expect names that match PATTERN to be in POOL; see leasectl pool expect --help. May be "
    "repeated.",
    to="expected",
    multiple=True,
)
def manifest(
    *,
    namespace: str | None,
    account: str,
    admin: str | None,
    maintenance: bool,
    image: str | None,
    pools: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    """Print manifests for kubectl apply.

    They hold a service account, a Role with the rights that pools in a namespace need, and a
    RoleBinding. The cluster isn't contacted. You can apply them again, also for further accounts:
    existing pools keep their holders, but get the settings and resources of the manifest.
    Expectations that aren't in the manifest stay. The namespace must exist, unless it is
    leasectl-maintenance.

    \b
    Examples:
      leasectl kubernetes manifest --namespace ci --service-account builder \\
        --pool azure--install=2 | kubectl apply -f -
      leasectl kubernetes manifest --maintenance \\
        --image registry/leasectl:1.0.0 | kubectl apply -f -
    """
    there = _namespace(maintenance=maintenance) if namespace is None else namespace
    made = manifest_of(
        there,
        account,
        admin=admin,
        maintenance=maintenance,
        image=image,
        counts=parse_counts(pools),
        patterns=parse_patterns(expected),
        makes_namespace=there == OF_MAINTENANCE,
    )
    show(yaml_documents(made))


def _namespace(*, maintenance: bool) -> str:
    named = namespace_in(choose_backend(None).url)
    return named or (OF_MAINTENANCE if maintenance else _DEFAULT_NAMESPACE)


@group(manifest)
def command() -> None:
    """Print Kubernetes manifests for leasectl.

    leasectl installs nothing in a cluster: leases are objects of the Kubernetes API.
    """
