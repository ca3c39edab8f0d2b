"""What Boskos' answers mean: no request is made here.

It has few codes for many things. 404 is both "none is free", which passes, and "there is no such
type", which doesn't: only the text tells, and where that is new, its metric. 401 is another owner's
resource, or nobody's; but of what stands in front of Boskos and asks for a password, it is that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from leasectl.backends.unanswered import Loss, Refused, words_of
from leasectl.errors import AccessRefused, BackendUnreachable, CanNeverBeMet, NotAllowed, NotFound
from leasectl.http.messages import Answer
from leasectl.text.naming import is_name
from leasectl.text.printable import printable
from leasectl.typed.hints import Literal
from leasectl.typed.tuples import NamedTuple

_UNAVAILABLE = ("available", "try again")
_WHICH_THERE_ARE = "which types there are says the file that its --config names"
_UNKNOWN = ("not exist", "n't exist", "unknown", "no such")

# What came of a request for one: none is free now; or perhaps there is no such type, ask its metric
NotGranted = Literal["none free", "unclear"]
# What came of an update or a release: done, or why not.
Verdict = Literal["done", "not ours", "gone"]


class Granted(NamedTuple):
    """A resource that was granted.

    Args:
        name: Its name.
        type: Its type; empty where Boskos didn't say.
    """

    name: str
    type: str


class Metric(NamedTuple):
    """What there is of a type.

    Args:
        type: Which.
        states: How many are in each state.
        owners: How many each owner has; what nobody has is under the empty name.
    """

    type: str
    states: Mapping[str, int]
    owners: Mapping[str, int]


def check_allowed(url: str, answer: Answer) -> Answer:
    """The answer, unless it is that we may not ask.

    Raises:
        AccessRefused: It is; 401 by itself is what Boskos says of another owner.
    """
    is_password = answer.status == 401 and "www-authenticate" in answer.headers
    if is_password or answer.status in (403, 407):
        raise AccessRefused(
            NotAllowed(
                f"{words_of(url, answer)}; it wants a user and password: name them in "
                "LEASECTL_BOSKOS_USERNAME, and in the file of LEASECTL_BOSKOS_PASSWORD_FILE"
            )
        )
    return answer


def check_is_boskos(url: str, answer: Answer) -> None:
    """Look whether it is Boskos that refuses to tell the metric of no type.

    Raises:
        BackendUnreachable: It isn't.
    """
    if answer.status != 400 or "type" not in answer.text.casefold():
        raise BackendUnreachable(
            f"what answers there is no Boskos that works: {words_of(url, answer)}; check the path "
            "of its address"
        )


def granted(url: str, answer: Answer) -> Granted | NotGranted:
    """What came of a request for one.

    Raises:
        NotFound: There is no such type.
        CanNeverBeMet: Boskos will never grant that.
        Refused: Something else went wrong, and may go right the next time.
        Loss: Nobody can tell whether something was granted.
        BackendUnreachable: It isn't Boskos that answers there.
    """
    if answer.status == 200:
        return _resource_in(url, answer)
    if answer.status == 404:
        text = answer.text.casefold()
        is_unknown = any(each in text for each in _UNKNOWN)
        is_unavailable = any(each in text for each in _UNAVAILABLE)
        if is_unknown == is_unavailable:
            return "unclear"
        if is_unavailable:
            return "none free"
        raise NotFound(f"{words_of(url, answer)}; {_WHICH_THERE_ARE}")
    raise _failed(url, answer)


def verdict(url: str, answer: Answer) -> Verdict:
    """What came of an update or a release.

    Raises:
        Refused: Nothing, and that may pass; or something in front of Boskos has answered.
    """
    if answer.status == 200:
        if answer.text.strip():  # a page of something in between, which knows of no lease
            raise Refused(f"{url} answered something else than that it was done")
        return "done"
    if answer.status in (401, 409):
        return "not ours"
    if answer.status == 404:
        return "gone"
    raise Refused(words_of(url, answer))


def metric(url: str, pool_type: str, answer: Answer) -> Metric:
    """What an answer tells of a type.

    Args:
        url: Of the server.
        pool_type: The type that it was asked for.
        answer: What it said.

    Raises:
        NotFound: There is no such type.
        Refused: It tells nothing.
    """
    if answer.status == 404:  # it says to try again later, and would say so for ever
        raise NotFound(f'no type "{printable(pool_type)}" at {url}; {_WHICH_THERE_ARE}')
    if answer.status != 200:
        raise Refused(words_of(url, answer))
    try:
        told = json.loads(answer.text)
        return Metric(str(told["type"]), _counts(told["current"]), _counts(told["owner"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refused(f"{url} answered something else than a metric") from None


def _counts(value: object) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError
    return {str(key): int(number) for key, number in value.items()}


def _resource_in(url: str, answer: Answer) -> Granted:
    """The resource in an answer; by name it comes as a list of one."""
    try:
        told = json.loads(answer.text)
        if isinstance(told, list):
            (told,) = told
        name, its_type = told["name"], told.get("type") or ""
        if isinstance(name, str) and is_name(name) and isinstance(its_type, str):
            return Granted(name, its_type)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    if not answer.text.strip():
        raise BackendUnreachable(
            f"{url} answered nothing, as Boskos does where it has nothing; check the path of its "
            "address"
        )
    said = printable(" ".join(answer.text.split()), longest=100)
    raise Loss(f"{url} answered something else than a resource: {said or 'nothing'}")


def _failed(url: str, answer: Answer) -> BackendUnreachable | CanNeverBeMet:
    words = words_of(url, answer)
    if answer.status < 400:  # Boskos has no such answer
        return BackendUnreachable(f"{words}; check its address")
    if answer.status >= 500:
        return Loss(words)  # what Boskos asks itself may have been done, and its answer lost
    return Refused(words) if answer.status in (408, 429) else CanNeverBeMet(words)
