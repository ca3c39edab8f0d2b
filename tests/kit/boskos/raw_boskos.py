"""Boskos' requests as tests make them, one by one, without any of leasectl's code."""

from __future__ import annotations

import json
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from tests.kit.faults.raw_client import Got, RawClient


class RawBoskos:
    """One connection to a Boskos.

    Args:
        url: Of the server, perhaps with a path.
        owner: As whom it asks.
        pool_type: For what it asks.
        leased: The state of what it has.

    Attributes:
        raw: The connection.
    """

    def __init__(
        self, url: str, owner: str = "me", *, pool_type: str = "T", leased: str = "leased"
    ) -> None:
        self.raw = RawClient(url)
        self.owner = owner
        self.type = pool_type
        self._leased = leased
        self._path = urlsplit(url).path.rstrip("/")

    def __enter__(self) -> RawBoskos:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.raw.close()

    def post(self, path: str, body: str = "", **words: str) -> Got:
        return self.raw.ask("POST", f"{self._path}/{path}?{urlencode(words)}", body)

    def acquire(self, request_id: str = "", *, pool_type: str | None = None) -> Got:
        words = self._acquiring(request_id)
        return self.post("acquire", **{**words, "type": pool_type or self.type})

    def start_acquire(self, request_id: str = "") -> None:
        """Send an acquire, and leave its answer alone."""
        self.raw.send("POST", f"{self._path}/acquire?{urlencode(self._acquiring(request_id))}")

    def get(self, request_id: str = "") -> str:
        """Acquire one that has to be had; returns its name."""
        got = self.acquire(request_id)
        assert got.status == 200, got
        return str(json.loads(got.text)["name"])

    def acquire_names(self, *names: str, state: str = "free") -> Got:
        words = {"names": ",".join(names), "state": state, "dest": self._leased}
        return self.post("acquirebystate", **words, owner=self.owner)

    def update(self, name: str, body: str = "") -> Got:
        return self.post("update", body, name=name, owner=self.owner, state=self._leased)

    def owner_of(self, name: str) -> str:
        """Who has it, which is told to whoever renews it without having it; empty for nobody."""
        got = self.post("update", name=name, owner="nobody", state=self._leased)
        assert got.status == 401, got
        return got.text.rpartition("currently owned by ")[2].strip()

    def release(self, name: str, dest: str = "free") -> Got:
        return self.post("release", name=name, dest=dest, owner=self.owner)

    def reset(self, state: str, expire: str, dest: str) -> Got:
        return self.post("reset", type=self.type, state=state, expire=expire, dest=dest)

    def metric(self, pool_type: str | None = None) -> Got:
        wanted = urlencode({"type": pool_type or self.type})
        return self.raw.ask("GET", f"{self._path}/metric?{wanted}")

    def _acquiring(self, request_id: str) -> dict[str, str]:
        words = {"type": self.type, "state": "free", "dest": self._leased, "owner": self.owner}
        return {**words, "request_id": request_id} if request_id else words


class Refused(Exception):
    """A request was refused.

    Args:
        status: Of the answer.
        text: Its line.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Wording(NamedTuple):
    """How it says what.

    Args:
        none_free: With a type, or with whatever else there is none of.
        no_type: With a type.
        prefixes: Whether the error has what failed before it.
        quotes: Whether the type is in double quotes.
    """

    none_free: str = "no available resource {}, try again later."
    no_type: str = "resource type {} does not exist"
    prefixes: bool = True
    quotes: bool = True

    def no_resource(self, what: str) -> str:
        return self.none_free.format(what)

    def no_such_type(self, pool_type: str) -> str:
        return self.no_type.format(json.dumps(pool_type) if self.quotes else pool_type)

    def failed(self, deed: str, text: str) -> str:
        """What an answer says, of what was to be done and why it wasn't."""
        return f"{deed}: {text}" if self.prefixes else text


WORDINGS = {
    "new": Wording(),
    "old": Wording(prefixes=False, quotes=False),
    # Nobody has seen this one yet.
    "other": Wording("nothing of {} to hand out", "never heard of {}", quotes=False),
}


def other_owner(asking: str, owner: str) -> str:
    return f"owner mismatch request by {asking}, currently owned by {owner}"


def other_state(expected: str, state: str) -> str:
    return f"state mismatch - expected {expected}, current {state}"
