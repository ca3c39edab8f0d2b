"""``leasectl kubernetes``: print what `kubectl apply` needs."""

from __future__ import annotations

from leasectl.backends.kubernetes_manifest import (
    check_image,
    check_namespace,
    controller,
    expectations,
    for_jobs_only,
    namespace_in,
    parse_account,
    rights,
)
from leasectl.backends.kubernetes_manifest import pools as objects_of
from leasectl.cli.command import new_command
from leasectl.cli.described import option
from leasectl.cli.groups import group
from leasectl.cli.maintenance_options import DEFAULT_NAMESPACE as OF_MAINTENANCE
from leasectl.cli.rendering.output import show
from leasectl.errors import InvalidRequest
from leasectl.leases.opening import choose_backend
from leasectl.text.naming import MOST_AT_ONCE, check_own_type, check_pattern
from leasectl.text.wording import printable
from leasectl.text.yaml_text import yaml_documents

_DEFAULT_ACCOUNT = "leasectl"
_DEFAULT_NAMESPACE = "default"


@new_command()
@option(
    "--namespace N",
    "Where the pools are. Default: what LEASECTL_BACKEND names, if that is kubernetes://N; "
    "leasectl-maintenance with --maintenance; else default.",
    type=str,
)
@option(
    "--service-account S",
    "The account that leases there. It is created, unless it is in another namespace: N:S.",
    to="account",
    default=_DEFAULT_ACCOUNT,
    show_default=True,
)
@option(
    "--admin-account S",
    "Also make this account, for admins, and a policy by which --service-account, for jobs, "
    "can use pools but not change them. Needs Kubernetes 1.30 or later.",
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
    "Expect names that match in this pool, as leasectl pool expect --match does; may be repeated.",
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
    existing pools keep their holders, but get the settings and resources of the manifest; other
    expectations stay. The namespace must exist, unless it is leasectl-maintenance.

    \b
    Examples:
      leasectl kubernetes manifest --namespace ci --service-account builder \\
        --pool azure--install=2 | kubectl apply -f -
      leasectl kubernetes manifest --maintenance \\
        --image registry/leasectl:1.0.0 | kubectl apply -f -
    """
    there = _namespace(maintenance=maintenance) if namespace is None else check_namespace(namespace)
    whose = parse_account(account, there)
    counts, patterns = _counts(pools), _patterns(expected)
    # That of maintenance is leasectl's own; who leases elsewhere has a namespace there.
    is_ours = there == OF_MAINTENANCE
    made = rights(there, whose, for_maintenance=maintenance, makes_namespace=is_ours)
    if admin is not None:
        admins = parse_account(admin, there)
        if admins == whose:
            raise InvalidRequest("--admin-account is --service-account; name two accounts")
        made += rights(there, admins, for_maintenance=False, makes_namespace=False)
        made += for_jobs_only(there, whose)
    if image is not None:
        if not maintenance:
            raise InvalidRequest("--image needs --maintenance; the controller needs its rights")
        made += controller(there, whose, check_image(image))
    made += objects_of(there, counts) + expectations(there, patterns)
    show(yaml_documents(made))


def _namespace(*, maintenance: bool) -> str:
    named = namespace_in(choose_backend(None).url)
    return named or (OF_MAINTENANCE if maintenance else _DEFAULT_NAMESPACE)


def _counts(texts: tuple[str, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in texts:
        pool_type, equals, number = text.partition("=")
        is_number = equals and number.isascii() and number.isdecimal() and len(number) < 10
        if not is_number or not 1 <= int(number) <= MOST_AT_ONCE:
            raise InvalidRequest(
                f'--pool "{printable(text)}": write it like azure--install=2, of 1 to '
                f"{MOST_AT_ONCE} resources"
            )
        if check_own_type(pool_type) in counts:
            raise InvalidRequest(f'--pool: "{pool_type}" is given twice')
        counts[pool_type] = int(number)
    return counts


def _patterns(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the pool of each pattern."""
    patterns: dict[str, str] = {}
    for text in texts:
        pool_type, equals, pattern = text.partition("=")
        if not equals:
            raise InvalidRequest(f'invalid --expect "{printable(text)}"; use POOL=PATTERN')
        if check_pattern(pattern) in patterns:
            raise InvalidRequest(f'--expect: "{pattern}" is given twice')
        patterns[pattern] = check_own_type(pool_type)
    return patterns


@group(manifest)
def command() -> None:
    """Print Kubernetes manifests for leasectl.

    leasectl installs nothing in a cluster: leases are objects of the Kubernetes API.
    """
