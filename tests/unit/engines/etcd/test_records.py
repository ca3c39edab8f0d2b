"""What is written in etcd, by us or by others, and whose it is; against a real server."""

from __future__ import annotations

import json
import math

import pytest

from leasectl.engines.etcd.gateway.requests import KeyValue, put, read, read_all
from leasectl.engines.etcd.records import (
    encode_settings,
    parse_settings,
)
from leasectl.engines.facts import PoolSettings
from leasectl.errors import CorruptState, LeaseError, NotAllowed
from leasectl.model import Request
from tests.kit.etcd.access import NAMES, Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.waits import eventually


class TestClaimKeys:
    def test_the_same_claim_key_in_two_state_directories_is_two(
        self, etcd: EtcdServer, store: Access, prefix: str
    ) -> None:
        elsewhere = Access(etcd.endpoints, prefix, state_id="other-host")
        store.acquire("handle", Request("T"))
        elsewhere.acquire("handle", Request("T"))
        assert store.engine.free("handle") == (NAMES[0],)
        assert elsewhere.held() == [NAMES[1]]
        assert [each.claim_key for each in store.pool().resources[:2]] == [
            None,
            "@other-host/handle",
        ]

    def test_what_nobody_of_ours_wrote_is_refused(self, store: Access) -> None:
        store.gateway.commit((), [put(store.keys.resource("T", "a;b\x1b"), "")])
        with pytest.raises(LeaseError, match="not allowed"):
            store.pool()


class TestForeignText:
    """Not every Python finds the same characters printable; this one none does."""

    UNKNOWN = "\U0001fae8\u0378"
    SHOWN = "\\u0378"

    @pytest.fixture
    def labelled(self, store: Access) -> str:
        """The key of a claim of two that has such a label."""
        labels = (("mood", self.UNKNOWN),)
        store.acquire("holder", Request("T", count=2, ttl_seconds=60, labels=labels))
        (found,) = store.gateway.read(read_all(store.keys.helds("T"))).answers
        return found.items[0].key

    def test_a_label_of_a_newer_python_is_shown_escaped(self, store: Access, labelled: str) -> None:
        lease = store.pool().resources[0].lease
        assert lease is not None
        ((key, shown),) = lease.labels
        assert key == "mood" and shown.endswith(self.SHOWN) and shown.isprintable()

    def test_nobody_is_hindered_by_it_and_it_stays_as_it_was_written(
        self, store: Access, labelled: str
    ) -> None:
        store.pools.remove_resources("T", [NAMES[0]], force=True)
        (found,) = store.gateway.read(read(labelled)).answers
        assert found.first is not None
        assert json.loads(found.first.value)["labels"] == [["mood", self.UNKNOWN]]
        assert store.engine.renew("holder") == (NAMES[1],)
        assert store.engine.free("holder") == (NAMES[1],)

    @pytest.mark.parametrize("field", ["owner", "holder_identity", "labels"])
    def test_what_could_harm_a_terminal_is_escaped(
        self, store: Access, labelled: str, field: str
    ) -> None:
        (found,) = store.gateway.read(read(labelled)).answers
        assert found.first is not None
        harmful = "host/\x1b[2J\u202e\ud800"
        record = json.loads(found.first.value)
        record[field] = [[harmful, harmful]] if field == "labels" else harmful
        store.gateway.commit((), [put(labelled, json.dumps(record))])
        shown = store.pool().resources[0]
        assert shown.lease is not None
        said = {"owner": shown.claim_key, "holder_identity": shown.lease.holder_identity}
        said["labels"] = "".join(*shown.lease.labels) if field == "labels" else ""
        assert "\\x1b[2J\\u202e\\ud800" in str(said[field])
        assert all(str(text).isprintable() for text in said.values())
        with pytest.raises(NotAllowed) as refused:
            store.pools.remove_resources("T", [NAMES[0]], force=False)
        assert str(refused.value).isprintable()

    def test_so_is_a_ticket_of_somebody_who_waits(self, store: Access) -> None:
        store.acquire("holder", Request("T", count=4))
        store.begin(f"{self.UNKNOWN}\x1b", Request("T"))
        (claim_key,) = eventually(store.queue)
        assert claim_key.endswith(f"{self.SHOWN}\\x1b")
        assert store.pool().queue[0].holder_identity.isprintable()
        store.engine.free("holder")

    @pytest.mark.parametrize("wrong", ["[" * 100_000, "7", "ticket", "acquire_time", "owner"])
    def test_what_is_no_record_is_refused_in_one_line(
        self, store: Access, labelled: str, wrong: str
    ) -> None:
        (found,) = store.gateway.read(read(labelled)).answers
        assert found.first is not None
        record = json.loads(found.first.value)
        if wrong in record:
            wrong = json.dumps({**record, wrong: math.inf})
        store.gateway.commit((), [put(labelled, wrong)])
        with pytest.raises(CorruptState, match="can't be read") as refused:
            store.pool()
        assert str(refused.value).isprintable()


SETTINGS = PoolSettings(pace_seconds=20.0, burst=2, aging_seconds=60.0)


def test_settings_are_read_as_they_were_written() -> None:
    assert parse_settings(KeyValue("/p/settings/T", encode_settings(SETTINGS), 1, 1)) == SETTINGS


@pytest.mark.parametrize(
    "wrong", [{"pace_seconds": -1.0}, {"aging_seconds": -5}, {"burst": 0}, {"pace_seconds": 1e300}]
)
def test_settings_that_nobody_could_keep_to_are_refused(wrong: dict[str, float]) -> None:
    text = json.dumps({**json.loads(encode_settings(SETTINGS)), **wrong})
    with pytest.raises(CorruptState, match="/p/settings/T can't be read"):
        parse_settings(KeyValue("/p/settings/T", text, 1, 1))


@pytest.mark.parametrize("format_", [None, 0, 2, "1", True])
def test_pool_of_another_format_is_refused(format_: object) -> None:
    text = json.dumps({**json.loads(encode_settings(SETTINGS)), "format": format_})
    with pytest.raises(CorruptState, match=r"has format .*, this version of leasectl reads 1"):
        parse_settings(KeyValue("/p/settings/T", text, 1, 1))
