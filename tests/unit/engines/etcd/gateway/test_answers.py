"""What an answer comes to, in the form of each gateway: the one of etcd 3.6 has no `error`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasectl.engines.etcd.gateway.answers import InvalidArgument, Unauthenticated, parse_answer
from leasectl.http.messages import Answer
from leasectl.http.no_answer import NoAnswer


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
