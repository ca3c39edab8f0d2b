"""Answers of a `leasectl+http` server that can't be meant, or mean harm."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, cast

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import Context
from leasectl.backends.serve.backend import ServeBackend
from leasectl.backends.serve.connection import Calls
from leasectl.backends.serve.protocol import ROUND, ROUND_SECONDS
from leasectl.backends.unanswered import Refused
from leasectl.errors import LeaseError
from leasectl.http.messages import Answer
from leasectl.model import Claimant, Lease, Request
from leasectl.state.directory import State
from tests.kit.recorded import NoJournal

EVIL = "../../x\x1b[31m$(id)\ny"


def lease(**fields: object) -> dict[str, object]:
    numbers = dict.fromkeys(("fence", "ticket", "grant", "lease_transitions"), 1)
    times = dict.fromkeys(("acquire_time", "renew_time", "lease_duration_seconds"), 1.0)
    return {"is": "Lease", "name": "a", "holder_identity": "h", **numbers, **times, **fields}


def read(text: object, status: int = 200) -> Any:
    calls = Calls(Context("leasectl+http://127.0.0.1:1"))
    try:
        return calls.result_in(Answer(status, json.dumps(text)))
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
    with pytest.raises(Refused, match="without a result"):
        read({"result": result})


def test_texts_are_safe_to_print() -> None:
    shown = read({"result": lease(holder_identity=EVIL, labels=[[EVIL, EVIL]])})
    texts = [shown.holder_identity, *shown.labels[0]]
    assert all(text.isprintable() and "$(id)" in text for text in texts)
    with pytest.raises(LeaseError) as said:
        read({"error": "NotFound", "message": EVIL}, 404)
    assert str(said.value).isprintable()


class _OneLease(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def result(self) -> object:
        return {"is": "Granted", "leases": [lease()]}

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps({"result": self.result()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _acquiring(handler: type[_OneLease]) -> Iterator[Callable[[int], tuple[Lease, ...] | None]]:
    """Give what acquires so many leases of a server without waiting."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"leasectl+http://127.0.0.1:{server.server_port}"
        backend = ServeBackend(Context(url), cast("State", None))

        def acquire(count: int) -> tuple[Lease, ...] | None:
            claimant = Claimant("h/1", "a/1/h/h", Request("T", count), None)
            journal = NoJournal()
            backend.acquire(claimant, journal, Patience(wait_seconds=0))  # type: ignore[arg-type]
            return journal.leases

        try:
            yield acquire
        finally:
            backend.close()
            server.shutdown()


def test_a_grant_of_another_number_is_no_answer() -> None:
    with _acquiring(_OneLease) as acquire:
        acquire(1)
        with pytest.raises(LeaseError, match="without a result"):
            acquire(2)


def test_a_request_is_repeated_when_its_round_is_over() -> None:
    rounds: list[str] = []

    class InRounds(_OneLease):
        def result(self) -> object:
            rounds.append(self.headers[ROUND])
            return super().result() if len(rounds) == 3 else None

    with _acquiring(InRounds) as acquire:
        assert acquire(1)
    assert rounds == [str(ROUND_SECONDS)] * 3
