"""Map the API server's errors to ours.

What callers act upon are errors of their own: `Absent`, `Conflict`, `AlreadyExists`, `Expired`,
`Busy`. What people have to mend is a `LeaseError`: what we may, what was asked for. All else says
nothing of what became of the request: `NoAnswer`, which may become `LostAnswer`.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, NamedTuple

from leasectl.engines.kubernetes.api.address import NAMESPACES, Deed, Json
from leasectl.errors import (
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    NoNamespace,
)
from leasectl.http.messages import Answer, redirection
from leasectl.http.no_answer import NoAnswer
from leasectl.text.properties import read_json
from leasectl.text.wording import printable

_LONGEST_WORDS = 300
# However long a server says: whoever asks has a deadline of its own.
_LONGEST_PAUSE_SECONDS = 3600.0
# What RBAC says: `User "u" cannot list resource "leases" in API group …`.
_NO_ROLE = r'User "(?P<user>[^"]*)" cannot '
# Go: `Client sent an HTTP request to an HTTPS server.`; nginx has an `HTTPS port`.
_WITHOUT_TLS = " HTTPS "
_BUDGET = "DisruptionBudget"
_READS = ("get", "list", "watch")


class Refused(Exception):
    """The server refused a request, and says why: it wasn't carried out."""


class Absent(Refused):
    """There is no such object (404)."""


class Conflict(Refused):
    """It is another by now than was said: its uid, or its resourceVersion (409)."""


class AlreadyExists(Conflict):
    """An object of that name is there (409)."""


class Expired(Refused):
    """What was asked for is too old: list anew (410)."""


class Busy(Refused):
    """The server is busy, and may do it if it is asked again (429; 409 of a quota).

    Args:
        words: The server's text, printable.
        retry_after_seconds: When to ask again, as the server says; None if it doesn't.
        is_budget: A PodDisruptionBudget forbids an eviction now.
    """

    def __init__(
        self, words: str, *, retry_after_seconds: float | None, is_budget: bool = False
    ) -> None:
        super().__init__(words)
        self.retry_after_seconds = retry_after_seconds
        self.is_budget = is_budget


class NotAuthenticated(Refused):
    """It doesn't know who we are (401): a token or certificate is expired, damaged, or foreign."""


class NotPermitted(Refused):
    """We may not do that (403); ``words`` says what to do about it."""


def is_not_permitted(error: BaseException) -> bool:
    """Tell whether an error comes of that: we may not."""
    return isinstance(error.__cause__, NotPermitted)


class Failed(NoAnswer):
    """The server failed (5xx); the request may have been carried out or not.

    Args:
        text: What it said, printable.
        status: HTTP's.
        retry_after_seconds: When to ask again, as it says; None where it doesn't.
    """

    def __init__(self, text: str, *, status: int, retry_after_seconds: float | None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class LostAnswer(BackendUnreachable):
    """A write may have been carried out, and may not: read back, or it is known later.

    Args:
        text: For people, who are to do it again.
        status: HTTP's, where the server failed rather than said nothing; else 0.
        words: What the server said then.
    """

    def __init__(self, text: str, *, status: int = 0, words: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.words = words


class _Said(NamedTuple):
    words: str
    reason: str
    details: Json
    is_status: bool


def parse_answer(deed: Deed, server: str, answer: Answer) -> Json:
    """Return the object in the answer to a request.

    Args:
        deed: The action of the request.
        server: The server's address, for messages.
        answer: The answer.

    Raises:
        Absent, Conflict, AlreadyExists, Expired, Busy, NotAuthenticated, NotPermitted: The server
            says so.
        NoNamespace: The namespace is missing.
        InvalidRequest: The server rejects the size or the content of the request (413, 422).
        CorruptState: The server doesn't understand the request (400, in Kubernetes' own form).
        NoAnswer: No usable answer; the request may have been carried out or not.
    """
    if 200 <= answer.status < 300:
        return _object(answer)
    raise refusal(deed, server, answer)


def refusal(deed: Deed, server: str, answer: Answer) -> Exception:
    """The error for an answer that isn't what was asked for, as `parse_answer` raises it."""
    said = _read(answer)
    status, words = answer.status, said.words
    if status == 401:
        return NotAuthenticated(words)
    if status == 403:
        return NotPermitted(_forbidden(deed, said))
    if status == 404:
        return _absent(deed, server, said)
    if status == 409 and deed.verb not in _READS:
        return _conflict(deed, said)
    if status == 410 and deed.verb in ("list", "watch"):
        return Expired(words)
    if status in (413, 422):
        return InvalidRequest(f"{server} rejects this request: {deed}: {words}")
    if status == 400 and said.is_status:
        return CorruptState(f"{server} doesn't understand this request: {deed}: {words}")
    pause = _retry_after(answer, said.details)
    if status == 429:
        return Busy(words, retry_after_seconds=pause, is_budget=_is_budget(said.details))
    if status >= 500:
        text = f"answered {status}: {words}"
        return Failed(text, status=status, retry_after_seconds=pause)
    # Who stands before the server may do better in a moment; a 400 that isn't Kubernetes' own says
    # that a request came only in part. What waits for TLS says that with 400, too, and will again.
    may_pass = status in (409, 410) or (status == 400 and _WITHOUT_TLS not in words)
    text = f"answered {status} ({words}), which isn't an API server's answer"
    return NoAnswer(text, lasting=not may_pass)


def _conflict(deed: Deed, said: _Said) -> Refused:
    """Another object than was said; or, where there is none yet, a quota that changes just now."""
    if said.reason == "AlreadyExists":
        return AlreadyExists(said.words)
    if deed.verb == "create" and not deed.subresource:
        return Busy(said.words, retry_after_seconds=None)
    return Conflict(said.words)


def _retry_after(answer: Answer, details: Json) -> float | None:
    """Return after how many seconds to retry: RFC 9110, 10.2.3, or Kubernetes' details."""
    for said in (answer.headers.get("retry-after"), details.get("retryAfterSeconds")):
        # It may also be a date, of a clock that isn't ours; no API server sends one.
        if re.fullmatch(r"[0-9]{1,9}", str(said).strip(), re.ASCII) and float(str(said)):
            return min(float(str(said)), _LONGEST_PAUSE_SECONDS)
    return None


def read_object(text: str) -> Json | None:
    """Return the JSON object that a text is; None if it isn't one."""
    with contextlib.suppress(ValueError, RecursionError):
        said = read_json(text)
        if isinstance(said, dict):
            return said
    return None


def _object(answer: Answer) -> Json:
    said = read_object(answer.text)
    if said is not None:
        return said
    shown = printable(answer.text[:200].strip(), longest=60) or "with nothing"
    raise NoAnswer(f"answered {answer.status} {shown}, which isn't an API server's answer")


def _read(answer: Answer) -> _Said:
    """What was said; not always Kubernetes' own form, as of a 429 or of what stands before it."""
    said = read_object(answer.text)
    if said is not None and said.get("kind") == "Status":
        return _status_said(said)
    words = redirection(answer) or " ".join(answer.text[:4000].split()) or "nothing"
    return _Said(printable(words, longest=_LONGEST_WORDS), "", {}, is_status=False)


def _status_said(status: Json) -> _Said:
    """What an object of kind Status says; anybody may have made it."""
    details = status.get("details")
    message = status.get("message") or status.get("reason") or "no reason given"
    return _Said(
        printable(str(message), longest=_LONGEST_WORDS),
        str(status.get("reason") or ""),
        details if isinstance(details, dict) else {},
        is_status=True,
    )


def _forbidden(deed: Deed, said: _Said) -> str:
    found = re.search(_NO_ROLE, said.words)
    if not found:  # a quota, an admission webhook, a namespace that is being deleted
        return f"not allowed to {deed}: {said.words}"
    from leasectl.engines.kubernetes.api.rights import how_to_permit

    user = printable(found["user"], longest=200)
    if user == "system:anonymous":
        return (
            f"nobody is allowed to {deed} without a token or certificate; add one to the kubeconfig"
        )
    who = f'"{user}" is not allowed to {deed.verb} {deed.resource}{deed.where}'
    perhaps = ", or the namespace is missing" if deed.collection.namespace else ""
    return f"{who}{perhaps}; {how_to_permit(user, deed)}"


def _absent(deed: Deed, server: str, said: _Said) -> Exception:
    collection = deed.collection
    namespace = collection.namespace or (deed.name if collection == NAMESPACES else "")
    if said.is_status and said.details.get("kind") == "namespaces" and namespace:
        shown = printable(namespace)
        missing = InvalidRequest(
            f'{server} has no namespace "{shown}"; make it with: kubectl create namespace {shown}, '
            "or name another in the address"
        )
        return NoNamespace(missing)
    # Of what the server has, it says which is missing; what it doesn't have, isn't any kind.
    if said.is_status and deed.name and said.details.get("name"):
        return Absent(said.words)
    return NoAnswer(f"has no {deed.resource} ({said.words}); is it an API server?", lasting=True)


def _is_budget(details: Any) -> bool:
    causes = details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == _BUDGET for cause in causes
    )


def watch_error(deed: Deed, server: str, status: Json) -> Exception:
    """The error for an ERROR event of a watch, whose object says it: HTTP's own was 200."""
    code = status.get("code")
    number = code if isinstance(code, int) else 500
    return refusal(deed, server, Answer(number, json.dumps({**status, "kind": "Status"})))
