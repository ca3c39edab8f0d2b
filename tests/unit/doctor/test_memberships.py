"""What doctor says of names that are in another pool than expected."""

from __future__ import annotations

from leasectl.doctor.findings import Finding
from leasectl.doctor.holders import misplaced_here
from leasectl.leases.service import Service
from leasectl.pools import memberships
from tests.kit.doctor_reports import doctor
from tests.kit.etcd.server import EtcdServer
from tests.kit.support import Cli


def looked_at(service: Service) -> Finding:
    return misplaced_here(service)


def test_names_are_where_they_belong_or_are_named_with_what_to_do(cli: Cli) -> None:
    cli.pool("A", "a-1", "a-2")
    cli.pool("B", "b-1")
    with cli.service() as service:
        assert looked_at(service).what == "3 resources, none outside its expected pool"
        memberships.expect(service, "B", [], ["a-*"])
        found = looked_at(service)
        assert found.status == "warn"
        assert found.what.startswith("2 resources in another pool than expected: a-1 is in A and")
        assert "pool move --names a-1 --to B" in str(found.advice)
        memberships.move(service, ["a-1", "a-2"], "B", when_free=False)
        assert looked_at(service).status == "ok"


def test_a_pool_that_is_gone_and_expected_is_named(cli: Cli) -> None:
    cli.pool("A", "a-1")
    with cli.service() as service:
        memberships.expect(service, "A", [], ["a-*"])
        service.pools.delete_pool("A", force=False)
        found = looked_at(service)
        assert (found.status, found.what.endswith("doesn't exist: a-* in A")) == ("warn", True)
        assert "--match 'a-*' --drop" in str(found.advice)


def check_that_names_expected_in_a_pool_that_is_gone_are_named(cli: Cli, check: str) -> None:
    cli.ok("pool", "create", "A", "--names", "a-1,a-2")
    cli.ok("pool", "expect", "A", "--names", "a-1,x-1")
    assert doctor(cli)[check]["status"] == "ok"
    cli.ok("pool", "delete", "A")
    found = doctor(cli)[check]
    assert found["what"] == "resources are expected in a pool that doesn't exist: a-1, x-1 in A"
    mending = "pool expect A --names a-1 --drop"
    assert f"leasectl {mending};" in found["advice"]
    cli.ok(*mending.split())
    assert doctor(cli)[check]["what"].endswith(": x-1 in A")


def test_names_that_are_expected_in_a_pool_that_is_gone_are_named(cli: Cli) -> None:
    check_that_names_expected_in_a_pool_that_is_gone_are_named(cli, "memberships")


def test_so_they_are_in_etcd(cli: Cli, etcd: EtcdServer, prefix: str) -> None:
    cli.env["LEASECTL_BACKEND"] = f"{etcd.endpoints[0].replace('http', 'etcd')}{prefix}"
    check_that_names_expected_in_a_pool_that_is_gone_are_named(cli, "etcd memberships")
