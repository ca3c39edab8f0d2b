"""Watches: follow what happens below a prefix, or to one key.

It ends in many ways, and all mean the same: list again, and watch from there. The member ends it
when it is stopped, or has forgotten what it was to begin with; and who keeps a ticket alive cuts
it, where its member has turned out to lag.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from leasectl.engines.cluster.objects import Happened, Identity
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import (
    KeyValue,
    encode,
    end_of,
    parse_key_value,
    read,
)
from leasectl.errors import NotAllowed
from leasectl.http.exchange import Client, CuttableStream
from leasectl.http.messages import Call
from leasectl.http.no_answer import NoAnswer, WatchEnded
from leasectl.text.properties import MALFORMED, read_integer, read_json, reason_of
from leasectl.text.wording import printable

_HEADERS_SECONDS = 2.0
# By default a member says every ten minutes where it is, when nothing else happens.
_LONGEST_SILENCE_SECONDS = 900.0

# What a key tells of that was written, or has gone.
Tell = Callable[[KeyValue, bool], Happened]


class EtcdWatch(CuttableStream):
    """A watch, as `Watch`.

    Args:
        gateway: The cluster.
        begins: What keys begin with that are watched.
        since: It tells what comes after that revision.
        tell: Says what a key tells of.
        opened: Where it is among the watches that are open, or about to be.

    Attributes:
        member: The number of the member that tells.
        since: As given.
    """

    def __init__(
        self,
        gateway: Gateway,
        begins: Sequence[str],
        since: int,
        *,
        tell: Tell,
        opened: set[EtcdWatch],
    ) -> None:
        super().__init__()
        self.member = gateway.current
        self.since = since
        self._gateway = gateway
        self._begins = begins
        self._tell = tell
        self._opened = opened

    def __enter__(self) -> Iterator[Happened]:
        client = self._gateway.client()
        self.member = member = self._gateway.current
        self._opened.add(self)  # a member that hangs may never answer: it is cut like an open one
        try:
            headers = self._gateway.headers(client, member, _HEADERS_SECONDS)
            stream = client.stream(
                Call(
                    f"{self._gateway.endpoints[member]}/v3/watch",
                    self._request().encode(),
                    headers,
                    longest_silence_seconds=_LONGEST_SILENCE_SECONDS,
                    is_terse=True,
                )
            )
            self._note(client, stream)
            lines = stream.__enter__()
            self._begin(lines)
        except NoAnswer as reason:
            self._gateway.leave(member)
            self._close(client)
            raise WatchEnded(str(reason)) from reason
        except BaseException:
            self._close(client)
            raise
        return self._events(lines)

    def __exit__(self, *reason: object) -> None:
        self._opened.discard(self)
        super().__exit__(*reason)

    def _close(self, client: Client) -> None:
        self.__exit__(None, None, None)
        client.close()

    def _request(self) -> str:
        return "".join(
            json.dumps(
                {
                    "create_request": {
                        "key": encode(each),
                        "range_end": encode(end_of(each)),
                        "start_revision": str(self.since + 1),
                        "progress_notify": True,
                    }
                }
            )
            for each in self._begins
        )

    def _begin(self, lines: Iterator[str]) -> None:
        """Wait until the first has begun, and see that its member isn't of an earlier time."""
        for line in lines:
            said = _result(line)
            if said.get("created"):
                # It lags, or it was restored from an older copy; a read that isn't late tells.
                is_behind = _revision(said) < self.since
                if is_behind and self._gateway.read(read(self._begins[0])).revision < self.since:
                    raise WatchEnded("etcd was restored from an older copy")
                return
        raise NoAnswer("the watch has ended")

    def _events(self, lines: Iterator[str]) -> Iterator[Happened]:
        try:
            for line in lines:
                said = _result(line)
                is_told = False
                for happened in map(self._happened, said.get("events", ())):
                    is_told = is_told or happened.what != "nothing"
                    if happened.what != "nothing":
                        yield happened
                if not is_told and len(self._begins) == 1:
                    yield Happened("nothing", Identity("", "", _revision(said)))
        except NoAnswer as reason:
            self._gateway.leave(self.member)
            raise WatchEnded(str(reason)) from reason
        raise WatchEnded("the member has ended the watch")

    def _happened(self, event: Any) -> Happened:
        try:
            kv = parse_key_value(event["kv"])
            is_gone = event.get("type") == "DELETE"
        except MALFORMED as error:
            raise WatchEnded(f"an event can't be read: {reason_of(error)}") from error
        return self._tell(kv, is_gone)


def _revision(said: Any) -> int:
    return read_integer(said["header"]["revision"])


def _result(line: str) -> Any:
    """What a line of the stream says.

    Raises:
        WatchEnded: That it is over.
        NotAllowed: The user may not watch that, or not any more.
        NoAnswer: Nothing that can be read.
    """
    try:
        result = read_json(line)["result"]
        if read_integer(result.get("compact_revision", 0)):
            raise WatchEnded("etcd has compacted the revision that the watch should start at")
        if result.get("canceled"):
            reason = printable(str(result.get("cancel_reason", "")), longest=120)
            if "permission denied" in reason:
                raise NotAllowed(f"the watch was cancelled: {reason}")
            raise NoAnswer("the watch was cancelled")
        _revision(result)
        return result
    except MALFORMED as error:
        raise NoAnswer(f"an event can't be read: {reason_of(error)}") from error
