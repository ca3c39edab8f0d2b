"""The two forms of the lease proxy's answers, written as Go writes them."""

from __future__ import annotations

import json

from tests.kit.faults.http1 import Answer


def refusal(status: int, text: str) -> Answer:
    """An answer that says why not; as of Go's `http.Error`, its text ends a line."""
    body = f"{text}\n".encode("utf-8", "replace")
    return Answer(status, body, headers=(("X-Content-Type-Options", "nosniff"),))


def names_answer(names: object) -> Answer:
    """A grant."""
    body = json.dumps({"names": names}, separators=(",", ":"), ensure_ascii=False)
    return Answer(200, body.encode(), "application/json")


def quoted(text: str) -> str:
    """Text in double quotes, as ``%q`` has it for what types consist of."""
    return json.dumps(text, ensure_ascii=False)
