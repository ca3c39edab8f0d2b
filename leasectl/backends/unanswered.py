"""Handle requests without a usable answer."""

from __future__ import annotations

from leasectl.errors import BackendUnreachable, NoLease
from leasectl.http.messages import Answer, redirection
from leasectl.http.no_answer import NoAnswer
from leasectl.text.wording import printable


class NotSent(BackendUnreachable):
    """No connection came about, so the server knows nothing of the request."""


class Loss(BackendUnreachable):
    """The request was sent and its answer didn't arrive: it may have been carried out."""


class Late(Loss):
    """The server took the request, and hadn't answered when the time for that was over."""


class Refused(BackendUnreachable):
    """The server answered with an error that may pass."""


class TimeOver(NoLease):
    """The time for an answer has passed."""


def words_of(url: str, answer: Answer) -> str:
    """What a server said, for an error."""
    said = redirection(answer) or printable(" ".join(_plain(answer).split()), longest=200)
    return f"{url} answered {answer.status}: {said or 'nothing'}"


def _plain(answer: Answer) -> str:
    """Return the text of an answer; of a page, only its title."""
    if not answer.headers.get("content-type", "").startswith("text/html"):
        return answer.text
    _, _, rest = answer.text.partition("<title>")
    title, end, _ = rest.partition("</title>")
    return title if end else "a page"


def trying_again(failure: Exception) -> str:
    """What people are told of one that isn't the end; what it asks them stays at its end."""
    return f"trying again: {failure}"


def failure(url: str, reason: NoAnswer) -> BackendUnreachable:
    """What it means that there was no answer: `NotSent` or `Loss`."""
    detail, advice = printable(reason.said, longest=120), "is the server there?"
    if reason.distrust is not None:
        detail, advice = str(reason), reason.advice
    if not reason.sent:
        error = NotSent(f"can't reach {url}: {detail}; {advice}")
        error.lasting = reason.lasting
        return error
    return Loss(f"no answer from {url}: {detail}")
