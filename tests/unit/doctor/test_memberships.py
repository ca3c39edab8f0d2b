"""What doctor says of names that are in another pool than expected."""

from __future__ import annotations

from leasectl.doctor.memberships import misplaced
from leasectl.pools.memberships import MembershipService
from tests.kit.support import Cli


def test_names_are_where_they_belong_or_are_named_with_what_to_do(cli: Cli) -> None:
    cli.pool("A", "a-1", "a-2")
    cli.pool("B", "b-1")
    with cli.service() as service:
        memberships = MembershipService(service)
        assert misplaced(service).what == "3 names in pools, none that belongs elsewhere"
        memberships.expect("B", [], ["a-*"])
        found = misplaced(service)
        assert found.status == "warn"
        assert found.what.startswith("2 names in another pool than expected: a-1 is in A and")
        assert "pool move --names a-1 --to B" in str(found.advice)
        memberships.move(["a-1", "a-2"], "B", when_free=False)
        assert misplaced(service).status == "ok"


def test_a_pool_that_is_gone_and_expected_is_named(cli: Cli) -> None:
    cli.pool("A", "a-1")
    with cli.service() as service:
        MembershipService(service).expect("A", [], ["a-*"])
        service.pools.delete_pool("A", force=False)
        found = misplaced(service)
        assert (found.status, "names are expected in A" in found.what) == ("warn", True)
