"""``leasectl kubernetes manifest``: rights and pools, for kubectl to apply."""

from __future__ import annotations

from leasectl.cli.command import new_command
from leasectl.cli.context import choose_backend
from leasectl.cli.described import option
from leasectl.cli.maintenance_options import DEFAULT_NAMESPACE as OF_MAINTENANCE
from leasectl.cli.shown.output import show
from leasectl.errors import InvalidRequest
from leasectl.text.naming import MOST_AT_ONCE, check_own_type
from leasectl.text.printable import printable

EXAMPLE = """\b
Examples:
  leasectl kubernetes manifest --namespace ci --service-account builder \\
    --pool azure--install=2 | kubectl apply -f -
  leasectl kubernetes manifest --maintenance | kubectl apply -f -
"""
_DEFAULT_ACCOUNT = "leasectl"
_DEFAULT_NAMESPACE = "default"


@new_command(epilog=EXAMPLE)
@option(
    "--namespace",
    metavar="N",
    help="Where the pools are. Default: what LEASECTL_BACKEND names, if that is kubernetes://N; "
    "leasectl-maintenance with --maintenance; else default.",
)
@option(
    "--service-account",
    "account",
    default=_DEFAULT_ACCOUNT,
    show_default=True,
    metavar="S",
    help="Who leases there; it is made. One of another namespace is written N:S, and isn't made.",
)
@option(
    "--maintenance",
    is_flag=True,
    help="Also what leasectl maintenance takes, on nodes and pods of the whole cluster.",
)
@option(
    "--pool",
    "pools",
    multiple=True,
    metavar="TYPE=COUNT",
    help="Also a pool, of resources named TYPE--00, TYPE--01 and so on; may be repeated.",
)
def command(
    *, namespace: str | None, account: str, maintenance: bool, pools: tuple[str, ...]
) -> None:
    """Print what kubectl has to apply for leases in a cluster.

    That is a service account, a Role that allows it the least that pools in a namespace take, and
    a RoleBinding; nothing is asked of a cluster. Applied again for another account, it takes
    nothing from this one. A pool that is there already keeps its holders; a setting, or a
    resource's place, that was changed since is as it was here. The namespace has to be there,
    unless it is leasectl-maintenance.
    """
    from leasectl.backends.kubernetes_manifest import check_namespace, parse_account, rights
    from leasectl.backends.kubernetes_manifest import pools as objects_of
    from leasectl.text.yaml_text import yaml_documents

    there = _namespace(maintenance=maintenance) if namespace is None else check_namespace(namespace)
    whose = parse_account(account, there)
    counts = _counts(pools)
    # That of maintenance is leasectl's own; who leases elsewhere has a namespace there.
    is_ours = there == OF_MAINTENANCE
    made = rights(there, whose, for_maintenance=maintenance, makes_namespace=is_ours)
    show(yaml_documents(made + objects_of(there, counts)))


def _namespace(*, maintenance: bool) -> str:
    from leasectl.backends.kubernetes_manifest import namespace_in

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
