"""What ``leasectl doctor`` says of a cluster of etcd, and of what is held there."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3

import pytest

from leasectl.engines.etcd.requests import delete, put, read_all
from tests.kit.etcd.access import Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.hosts import catted
from tests.kit.support import Cli
from tests.kit.waits import eventually

# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once

NOBODY = "127.0.0.1:9"  # discard: nothing listens there


@pytest.fixture
def url(etcd: EtcdServer, cli: Cli) -> str:
    """Where a pool of two is, which commands use."""
    url = f"{etcd.endpoints[0].replace('http', 'etcd')}/{secrets.token_hex(8)}"
    cli.env["LEASECTL_BACKEND"] = url
    cli.ok("pool", "create", "T", "--count", "2")
    return url


def findings(cli: Cli, *args: str, **env: str | None) -> dict[str, dict[str, str]]:
    """What it found, by the names of the checks."""
    return {
        each["name"]: each
        for each in json.loads(cli("doctor", "--json", *args, **env).out)["checks"]
    }


def test_a_cluster_that_works_is_fine(cli: Cli, url: str) -> None:
    cli.ok("acquire", "-t", "T")
    found = findings(cli)
    assert found["etcd members"]["status"] == "ok"
    assert found["etcd members"]["what"].startswith("1 of 1 members answer, etcd 3.")
    assert found["etcd pools"]["what"] == "1 pool, 1 held, 0 waiting"
    assert found["etcd copies"]["what"] == "all copies match their objects"
    assert found["etcd events"]["what"] == "3 events kept, about 0.0 MB"
    assert found["etcd claims"]["what"] == "1 claim of this state directory, all with a handle here"


def test_a_member_that_does_not_answer_is_named(cli: Cli, url: str) -> None:
    both = url.replace("etcd://", f"etcd://{NOBODY},")
    members = findings(cli, LEASECTL_BACKEND=both)["etcd members"]
    assert members["status"] == "warn"
    assert members["what"].startswith("1 of 2 members answer")
    assert f"http://{NOBODY}: " in members["what"]


def test_a_claim_that_no_record_knows_is_given_back_with_fix(cli: Cli, url: str) -> None:
    handle = cli.ok("acquire", "-t", "T").rstrip().rpartition("/")[2]
    _forget_all_handles(cli)
    claims = findings(cli)["etcd claims"]
    assert (claims["status"], claims["what"]) == (
        "warn",
        f"claims in etcd that no handle here holds: {handle}/1",
    )
    fixed = findings(cli, "--fix")["etcd claims"]
    assert fixed["fixed"] == "gave back T--00; recorded as lost: none"
    assert json.loads(cli.ok("status", "--json"))["pools"][0]["free"] == 2


def test_a_claim_of_a_handle_that_names_the_cluster_differently_is_left_alone(
    cli: Cli, url: str
) -> None:
    cli.ok("acquire", "-t", "T")
    other = findings(cli, "--fix", LEASECTL_BACKEND=url.replace("127.0.0.1", "localhost"))
    assert other["etcd claims"]["status"] == "ok"
    assert json.loads(cli.ok("status", "--json"))["pools"][0]["held"] == 1


def test_a_record_without_its_claim_is_marked_as_lost_with_fix(cli: Cli, url: str) -> None:
    path = cli.ok("acquire", "-t", "T").rstrip()
    # The keeper renews at once what it is given, and would find out; the next time is far off.
    eventually(lambda: _is_renewed(cli, path))
    cli.ok("pool", "delete", "T", "--force", LEASECTL_STATE_DIR=f"{cli.state_dir}-of-another")
    claims = findings(cli)["etcd claims"]
    assert claims["what"].endswith(f"so their leases are lost: {path.rpartition('/')[2]}")
    findings(cli, "--fix")
    assert cli("renew", "--handle", path).code == 79


def test_copies_that_are_not_as_their_objects_are_put_right_with_fix(
    cli: Cli, url: str, etcd: EtcdServer
) -> None:
    access = Access(etcd.endpoints, "/" + url.rpartition("/")[2])
    (free,) = access.gateway.read(read_all(access.keys.frees("T"), keys_only=True)).answers
    gone, extra = free.items[0].key, f"{access.keys.coming('T')}lost"
    access.gateway.commit((), [delete(gone), put(extra, "{}")])
    copies = findings(cli)["etcd copies"]
    assert (copies["status"], copies["what"]) == (
        "warn",
        "2 keys with a copy of another record that differs from it (edited by hand?): "
        f"{gone}, {extra}",
    )
    assert findings(cli, "--fix")["etcd copies"]["fixed"] == f"repaired: {gone}, {extra}"
    assert findings(cli)["etcd copies"]["status"] == "ok"
    cli.ok("acquire", "-t", "T", "--name", "T--00", "-w", "0")


def _is_renewed(cli: Cli, handle: str) -> bool:
    (lease,) = catted(cli, handle)["leases"]
    return bool(lease["renew_time"] > lease["acquire_time"])


def _forget_all_handles(cli: Cli) -> None:
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db:
        db.execute("DELETE FROM handle")
        db.execute("DELETE FROM lease")
        db.commit()
