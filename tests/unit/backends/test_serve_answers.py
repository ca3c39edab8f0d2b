"""Answers of a `leasectl+http` server that can't be meant, or mean harm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasectl.backends.serve.connection import Calls
from leasectl.backends.unanswered import Refused
from leasectl.errors import LeaseError
from leasectl.http.messages import Answer
from leasectl.http.settings import Settings
from leasectl.system.clock import Clock

EVIL = "../../x\x1b[31m$(id)\ny"


def lease(**fields: object) -> dict[str, object]:
    numbers = dict.fromkeys(("fence", "ticket", "grant", "lease_transitions"), 1)
    times = dict.fromkeys(("acquire_time", "renew_time", "lease_duration_seconds"), 1.0)
    return {"is": "Lease", "name": "a", "holder_identity": "h", **numbers, **times, **fields}


def read(text: object, status: int = 200) -> Any:
    calls = Calls("leasectl+http://127.0.0.1:1", Settings(), clock=Clock())
    try:
        return calls.result_in(Answer(status, json.dumps(text)))["result"]
    finally:
        calls.close()


@pytest.mark.parametrize(
    "result",
    [
        {"is": "Granted", "leases": [lease(name=EVIL)]},
        {"is": "Granted", "leases": [lease()], "pool_type": EVIL},
        {"is": "Renewal", "names": [EVIL]},
        {"is": "Resource", "name": EVIL},
        {"is": "Pool", "type": EVIL, "resources": [], "queue": []},
        [EVIL],
    ],
)
def test_a_name_that_no_pool_may_have_is_no_answer(result: object) -> None:
    with pytest.raises(Refused, match="something else than a result"):
        read({"result": result})


def test_texts_are_safe_to_print() -> None:
    shown = read({"result": lease(holder_identity=EVIL, labels=[[EVIL, EVIL]])})
    texts = [shown.holder_identity, *shown.labels[0]]
    assert all(text.isprintable() and "$(id)" in text for text in texts)
    with pytest.raises(LeaseError) as said:
        read({"error": "NotFound", "message": EVIL}, 404)
    assert str(said.value).isprintable()
