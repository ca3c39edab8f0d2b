"""Map etcd's errors to ours."""

from __future__ import annotations

from leasectl.engines.etcd.requests import Json
from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.http.messages import Answer, redirection
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.text.durations import format_seconds
from leasectl.text.properties import read_integer, read_json
from leasectl.text.wording import printable

# The gRPC codes that the gateway passes on, as far as they say something that we act upon.
_NOT_FOUND, _PERMISSION_DENIED, _FAILED_PRECONDITION, _UNAUTHENTICATED = 5, 7, 9, 16
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _OUT_OF_RANGE, _UNIMPLEMENTED = 3, 8, 11, 12
# These come with the code for an invalid argument.
_ALSO_UNAUTHENTICATED = ("user name is empty", "revision of auth store is old")
# This one too, where a request came only in part: nothing was carried out.
_CUT_SHORT = "unexpected EOF"
# Since 3.5, without a code.
_COMMON_NAME = "CommonName of client"
# This one with the code that also says that there are too many requests.
_NO_SPACE = "database space exceeded"


class EtcdLeaseGone(Exception):
    """The etcd lease that a request was about has expired or was revoked."""


class FailedPrecondition(Exception):
    """An etcd lease of that id is there already, or there are no users to authenticate."""


class Unauthenticated(Exception):
    """There was no token, or it isn't valid there, or not any more. Nothing was carried out."""


class PermissionDenied(Exception):
    """The user may not do this. Nothing was carried out."""


class CommonNameRefused(Exception):
    """The gateway rejects the client's certificate because it has a common name."""


class InvalidArgument(LeaseError):
    """etcd doesn't take a request that has this form, or this user and password."""

    exit_code = BackendUnreachable.exit_code


class NoSpace(BackendUnreachable):
    """etcd has reached its quota: it writes nothing, and grants no lease, for anybody."""


def parse_answer(url: str, answer: Answer) -> Json:
    """Return the result of a request.

    Args:
        url: The URL of the request, for messages.
        answer: The member's answer.

    Raises:
        NoAnswer: The answer isn't etcd's, or doesn't tell what became of the request.
        EtcdLeaseGone, FailedPrecondition, Unauthenticated, PermissionDenied, CommonNameRefused:
            etcd refuses.
        LeaseError: etcd refuses, for a reason that people have to see.
    """
    try:
        said = read_json(answer.text)
    except (ValueError, RecursionError):
        said = None
    if said is None and _COMMON_NAME in answer.text:
        raise CommonNameRefused(printable(answer.text.strip(), longest=120))
    if not isinstance(said, dict) or (answer.status != 200 and "code" not in said):
        shown = redirection(answer) or printable(answer.text[:200].strip(), longest=60)
        words = f"{answer.status} ({shown or 'nothing'})"
        raise NoAnswer(f"answered {words}, which isn't an answer of etcd's v3 gateway")
    if answer.status == 200 and "error" not in said:
        return said
    raise _refusal(url, said)


def is_alive(answer: Json) -> bool:
    """Tell whether a keep-alive found its lease: etcd leaves the time out when there is none."""
    return read_integer(answer.get("result", {}).get("TTL", 0)) > 0


def _refusal(url: str, answer: Json) -> Exception:
    said = answer.get("error", answer.get("message"))  # etcd 3.6 has no `error`
    if isinstance(said, dict):  # in the middle of a stream
        answer, said = said, said.get("message")
    text = printable(str(said), longest=120)
    if any(each in text for each in _ALSO_UNAUTHENTICATED):
        return Unauthenticated(text)
    if _NO_SPACE in text:
        return NoSpace(
            f"{url}: {text}; compact and defragment etcd, and end its alarm with: "
            "etcdctl alarm disarm"
        )
    code = answer.get("code", answer.get("grpc_code"))
    if code == _INVALID_ARGUMENT and _CUT_SHORT in text:
        return NoAnswer(text)
    refusals: dict[object, Exception] = {
        _NOT_FOUND: EtcdLeaseGone(text),
        _FAILED_PRECONDITION: FailedPrecondition(text),
        _PERMISSION_DENIED: PermissionDenied(text),
        _UNAUTHENTICATED: Unauthenticated(text),
        _INVALID_ARGUMENT: InvalidArgument(f"{url}: {text}"),
        _OUT_OF_RANGE: BackendUnreachable(f"{url}: {text}"),
        _RESOURCE_EXHAUSTED: BackendUnreachable(f"{url}: {text}"),
        _UNIMPLEMENTED: InvalidArgument(f"{url}: {text}"),
    }
    # All others (no leader, leader changed, timed out) say nothing about what became of it.
    return refusals.get(code, NoAnswer(text))


class Failures:
    """The reasons why the members of a cluster gave no answer, one for each member."""

    def __init__(self) -> None:
        self._reasons: dict[str, NoAnswer] = {}

    def note(self, endpoint: str, reason: NoAnswer) -> None:
        """Keep a member's reason, unless an earlier one tells more."""
        before = self._reasons.get(endpoint)
        if before is None or _tells(reason) >= _tells(before):
            self._reasons[endpoint] = reason

    def text(self, within_seconds: float | None = None) -> str:
        """Return a message with all reasons and the next step.

        Args:
            within_seconds: How long the members were asked; None if more time wouldn't have helped.
        """
        limit = "" if within_seconds is None else f" within {format_seconds(within_seconds)}"
        said = ", ".join(f"{endpoint}: {reason}" for endpoint, reason in self._reasons.items())
        advice = advice_of(*(reason.advice for reason in self._reasons.values()))
        if not advice and limit:
            several = len(self._reasons) > 1
            advice = "are they up, and do they" if several else "is it up, and does it"
            advice += " have a quorum?"
            if self._reasons and all("refused" in str(each) for each in self._reasons.values()):
                advice = "is etcd running there?"
        return "; ".join(
            filter(None, [f"no answer from etcd{limit}{': ' * bool(said)}{said}", advice])
        )


def advice_of(*advices: str) -> str:
    """Return the different advices of several members in one text."""
    return ", or ".join(dict.fromkeys(filter(None, advices)))


def _tells(reason: NoAnswer) -> int:
    """Return how much a reason tells; that of the last try may only be a lack of time."""
    return 2 if reason.advice else int(str(reason) != NOT_IN_TIME)
