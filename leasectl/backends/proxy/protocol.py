"""Build its requests, and parse its answers.

``POST /lease/acquire?type=T&count=1`` waits until one is free and answers ``{"names": ["..."]}``.
``POST /lease/release`` takes ``{"names": ["..."]}``. Errors are one line of text beside a status.

``Idempotency-Key`` is ours. ci-operator's server knows nothing of it; `leasectl serve` sends it
back, answers a repeated request with what the first got, and releases only what was granted to
requests whose keys begin with it. There a release of no names undoes a request whose answer was
lost. ``Leasectl-Count`` is ours, too: how many will be asked for in all, one by one; that server
refuses the first of them where its pool could never give so many.
"""

from __future__ import annotations

from leasectl.backends.unanswered import Loss, Refused, words_of
from leasectl.errors import CanNeverBeMet, LeaseError, NoLease, NotFound
from leasectl.http.messages import Answer
from leasectl.text.properties import read_json

ACQUIRE = "/lease/acquire"
RELEASE = "/lease/release"
IDEMPOTENCY_KEY = "Idempotency-Key"
COUNT_IN_ALL = "Leasectl-Count"

# What ci-operator's proxy says when its time for waiting is over; the first is what was seen.
_WAITED_ENOUGH = ("resources not found", "context deadline exceeded")
# A request that was right, at another time: what stands in between is busy, or has lost patience.
_TOO_EARLY = (408, 425, 429)
# What stands in between has passed a request on, and doesn't know what became of it.
_PASSED_ON = (502, 504)
# What is said of a release of what isn't leased: by the proxy, and by Boskos behind it.
_UNKNOWN = "no resource name"
_NOT_LEASED = (_UNKNOWN, "statusCode 401", "statusCode 404")


def acquire_query(pool_type: str) -> dict[str, str]:
    """What to ask for one lease with."""
    return {"type": pool_type, "count": "1"}


def with_count(count: int) -> dict[str, str]:
    """The headers of the first request of several; none where it is the only one."""
    return {COUNT_IN_ALL: str(count)} if count > 1 else {}


def with_key(key: str) -> dict[str, str]:
    """The headers of a request with a key; none where the key isn't known."""
    return {IDEMPOTENCY_KEY: key} if key else {}


def heeds(answer: Answer, key: str) -> bool:
    """Tell whether the server heeds keys: it sends them back. So it is no ci-operator's."""
    return answer.headers.get(IDEMPOTENCY_KEY.lower()) == key


def is_from_proxy(answer: Answer) -> bool:
    """Tell whether a reverse proxy answered because the server behind it didn't."""
    return answer.status in (502, 503, 504)


def is_success(answer: Answer) -> bool:
    """Tell whether a request succeeded; an HTTP proxy may turn 200 into 203."""
    return 200 <= answer.status < 300


def names_in(answer: Answer) -> list[str] | None:
    """Return the resources that an answer names; None if it names none."""
    try:
        names = read_json(answer.text)["names"]
    except (ValueError, KeyError, TypeError, RecursionError):  # the last: nested too deeply
        return None
    well_formed = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if well_formed else None


def granted(url: str, answer: Answer) -> list[str]:
    """Return the resources that an answer to a request for a lease grants.

    Raises:
        Loss: The proxy may have granted a lease, and the answer doesn't name it.
        NotFound, InvalidRequest: The proxy will never grant the request.
        NoLease: The proxy has waited for as long as it does.
        Refused: The request failed, and may succeed the next time.
    """
    if not is_success(answer):
        raise _why_not(url, answer)
    names = names_in(answer)
    if names is None:
        raise Loss(f"unexpected answer from {url} (no resource name); is it really a lease proxy?")
    if not names:
        raise Refused(f"{url} granted no resource, and gave no reason")
    return names


def was_released(url: str, answer: Answer) -> bool:
    """Tell from the answer to a release of one resource whether it was leased until then.

    If it wasn't, nothing is left to do: the proxy doesn't know the resource, or Boskos has taken
    the lease back and says that the resource is free or leased by another owner.

    Raises:
        Loss: The answer doesn't tell.
        Refused: The resource is still leased.
    """
    if is_success(answer):
        if answer.text.strip():  # a page of something in between, which knows of no lease
            raise Refused(
                f"unexpected answer from {url} (no confirmation); is it really a lease proxy?"
            )
        return True
    if any(words in answer.text for words in _NOT_LEASED):
        return False
    if answer.status in _PASSED_ON:
        raise Loss(why_kept(url, answer))
    raise Refused(why_kept(url, answer))


def is_unknown(answer: Answer) -> bool:
    """Tell whether the proxy itself doesn't know a name, so that it hasn't asked Boskos."""
    return not is_success(answer) and _UNKNOWN in answer.text


def why_kept(url: str, answer: Answer) -> str:
    """Return a server's reason for not releasing a resource, without the list of those released."""
    return words_of(url, answer._replace(text=answer.text.partition("\nReleased:")[0]))


def is_undone(url: str, answer: Answer, key: str) -> bool:
    """Tell from the answer to an empty release whether the server has undone the request with the
    key: only a server that heeds keys does.

    Raises:
        Refused: The server couldn't undo it.
    """
    if answer.status == 400:
        return False  # it sees no sense in a release of no names, and never will
    if not is_success(answer):
        raise Refused(words_of(url, answer))
    return heeds(answer, key)


def _why_not(url: str, answer: Answer) -> LeaseError:
    words = words_of(url, answer)
    if answer.status == 404:
        return NotFound(words)
    if answer.status in _TOO_EARLY:
        return Refused(words)
    if 400 <= answer.status < 500:
        return CanNeverBeMet(words)
    if any(each in answer.text for each in _WAITED_ENOUGH):
        return NoLease(words)
    if answer.status in _PASSED_ON:
        return Loss(words)
    return Refused(words)
