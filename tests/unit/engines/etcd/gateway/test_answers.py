"""What an answer comes to, in the form of each gateway: the one of etcd 3.6 has no `error`."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.answers import InvalidArgument, Unauthenticated, parse_answer
from leasectl.engines.etcd.gateway import Gateway, MemberStatus
from leasectl.engines.etcd.requests import parse_outcome, read
from leasectl.errors import BackendUnreachable, CorruptState
from leasectl.http.exchange import Client
from leasectl.http.messages import Answer
from leasectl.http.no_answer import NoAnswer
from leasectl.system.clock import Clock


def both_forms(code: int, words: str) -> list[dict[str, Any]]:
    return [
        {"error": words, "message": words, "code": code},
        {"code": code, "message": words, "details": []},
    ]


@pytest.mark.parametrize("said", both_forms(3, "unexpected EOF"))
def test_to_a_request_that_came_only_in_part_it_is_none(said: dict[str, Any]) -> None:
    with pytest.raises(NoAnswer, match=r"^unexpected EOF$") as raised:
        parse_answer("http://e/v3/kv/txn", Answer(400, json.dumps(said)))
    assert not raised.value.lasting


@pytest.mark.parametrize("said", both_forms(3, "etcdserver: key is not provided"))
def test_what_is_wrong_with_a_request_is_said(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"^http://e/v3/kv/txn: etcdserver: key is not prov"):
        parse_answer("http://e/v3/kv/txn", Answer(400, json.dumps(said)))


@pytest.mark.parametrize("said", both_forms(3, "etcdserver: user name is empty"))
def test_who_has_said_no_name_is_told(said: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        parse_answer("http://e/v3/kv/txn", Answer(400, json.dumps(said)))


_COMPACTED = "etcdserver: mvcc: required revision has been compacted"


@pytest.mark.parametrize("said", both_forms(11, _COMPACTED))
def test_a_revision_that_was_compacted_meanwhile_is_an_error_for_people(
    said: dict[str, Any],
) -> None:
    with pytest.raises(BackendUnreachable, match=rf"^http://e/v3/kv/txn: {_COMPACTED}$"):
        parse_answer("http://e/v3/kv/txn", Answer(400, json.dumps(said)))


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(403, 7, "etcdserver: permission denied"), (400, 3, "etcdserver: user name is empty")],
)
def test_a_member_that_tells_only_others_how_it_is_is_there(
    monkeypatch: pytest.MonkeyPatch, status: int, code: int, words: str
) -> None:
    """As those of etcd 3.6 do, where users are demanded."""
    said = json.dumps({"code": code, "message": words, "details": []})
    monkeypatch.setattr(Client, "ask", lambda self, call, seconds: Answer(status, said))
    gateway = Gateway(EtcdAddress(("http://there:2379",)), clock=Clock(), deadline_seconds=1.0)
    assert gateway.status(0, 1.0) == MemberStatus("http://there:2379", has_leader=True)


_READ: dict[str, Any] = {"response_range": {"header": {}, "kvs": []}}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"responses": [_READ]}, '"header" is missing'),
        ({"header": {"revision": math.inf}, "responses": [_READ]}, "the wrong type or form"),
        ({"header": {"revision": "9" * 400}, "responses": [_READ]}, "too large"),
        ({"header": {"revision": "5"}, "succeeded": True}, "number of answers differs"),
        ({"header": {"revision": "5"}, "succeeded": True, "responses": [_READ] * 2}, "differs"),
        ({"header": {"revision": "5"}, "responses": [_READ]}, "differs"),
        ({"header": {"revision": "5"}, "responses": None}, "the wrong type or form"),
        ({"header": [], "responses": "x"}, "the wrong type or form"),
    ],
)
def test_an_outcome_that_etcd_would_not_give_is_one_line(said: dict[str, Any], why: str) -> None:
    with pytest.raises(CorruptState, match=why) as raised:
        parse_outcome(said, False, [read("/a")])
    assert "Error" not in str(raised.value)
