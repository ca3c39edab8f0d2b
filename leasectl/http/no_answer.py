"""Map network errors to one error."""

from __future__ import annotations

import re
import socket
import sys
from typing import TYPE_CHECKING, Literal

from leasectl.http.http1 import BadUrl, ProtocolError
from leasectl.text.wording import printable

if TYPE_CHECKING:
    import ssl

NOT_IN_TIME = "no answer in time"
_ERRNO = r"^\[Errno -?[0-9]+\] "
# OpenSSL's codes, which the ssl module doesn't name: it is another host's, or another IP address's.
_OTHER_NAME = (62, 64)
# Likewise: it isn't valid yet, or not any more.
_OTHER_TIME = (9, 10)
# Why there is no connection with TLS: we don't trust its certificate, or only not for that name or
# at this time; or it doesn't trust ours.
Distrust = Literal["certificate", "name", "time", "ours"]


# What to do about that.
OTHER_TIME = "renew the certificate, or correct the clock of this machine"


class NoAnswer(Exception):
    """A server gave no answer that counts: the request may or may not have been carried out.

    Args:
        text: Why.
        advice: What to do about it, if there is something in particular.
        sent: Whether the server can have got the request.
        lasting: Whether it would be the same the next time.
        said: Why, in the words of the library that noticed; empty if ``text`` has them.
        distrust: The side that isn't trusted, if that is why.
    """

    def __init__(
        self,
        text: str,
        *,
        advice: str = "",
        sent: bool = True,
        lasting: bool = False,
        said: str = "",
        distrust: Distrust | None = None,
    ) -> None:
        super().__init__(text)
        self.advice = advice
        self.sent = sent
        self.lasting = lasting
        self.said = said or text
        self.distrust = distrust


class NotInTime(NoAnswer):
    """The time that was given to it has passed."""


def too_long(longest_bytes: int) -> NoAnswer:
    """Say that an answer was given up because of its length."""
    what = f"answer is longer than {longest_bytes} bytes"
    return NoAnswer(f"its {what}", lasting=True, said=f"the {what}")


def no_answer(error: Exception, *, url: str, sent: bool) -> NoAnswer:
    """Return an error as what it means for the caller.

    Args:
        error: Of the system, of TLS, or of the protocol.
        url: What was requested.
        sent: Whether the sending of the request had begun by then.
    """
    said = re.sub(_ERRNO, "", str(error)) or type(error).__name__
    if isinstance(error, socket.timeout):
        return NoAnswer(NOT_IN_TIME, sent=sent, said=said)
    tls = _tls_error(error)
    if tls is not None:
        return _without_tls(tls, sent=sent, said=said)
    advice = ""
    if isinstance(error, ProtocolError) and url.startswith("http:"):
        advice = "if this etcd uses TLS, write etcds:// instead"
    detail = _detail(said.rstrip("."), error)
    return NoAnswer(detail, advice=advice, sent=sent, lasting=isinstance(error, BadUrl), said=said)


def _detail(text: str, error: Exception) -> str:
    return printable(text or type(error).__name__, longest=80)


def _without_tls(error: ssl.SSLError, *, sent: bool, said: str) -> NoAnswer:
    """Say of an error of TLS what it means."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, sent=sent, said=said)
    reason = getattr(error, "reason", None) or ""  # which OpenSSL gives its own errors only
    detail = _detail(reason.replace("_", " ").lower() or said.rstrip("."), error)
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return NoAnswer(
            f"it doesn't trust our client certificate, or needs one ({detail})",
            advice="name a certificate in LEASECTL_CERT_FILE, and its key in LEASECTL_KEY_FILE",
            sent=sent,
            lasting=True,
            said=said,
            distrust="ours",
        )
    is_other = isinstance(error, ssl.SSLEOFError) or reason == "WRONG_VERSION_NUMBER"
    advice = "if this etcd doesn't use TLS, write etcd:// instead" if is_other else ""
    return NoAnswer(detail, advice=advice, sent=sent, said=said)


def _untrusted(error: ssl.SSLCertVerificationError, *, sent: bool, said: str) -> NoAnswer:
    distrust: Distrust = "certificate"
    advice = "name the file with its CA in LEASECTL_CA_FILE"
    if error.verify_code in _OTHER_NAME:
        distrust, advice = "name", "use a name that is in the certificate"
    elif error.verify_code in _OTHER_TIME:
        distrust, advice = "time", OTHER_TIME
    why = printable(error.verify_message.rstrip("."))
    text = f"its certificate isn't trusted ({why})"
    return NoAnswer(text, advice=advice, sent=sent, lasting=True, said=said, distrust=distrust)


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """What lies below an error of a library, which carries it only as its cause."""
    if "ssl" not in sys.modules:  # to load it takes long, and without it there was no TLS
        return None
    import ssl

    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


class WatchEnded(Exception):
    """A watch ended: list again, and watch from there.

    Args:
        words: Why, printable.
        retry_after_seconds: Not before that, says the server; None where it doesn't.
    """

    def __init__(self, words: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(words)
        self.retry_after_seconds = retry_after_seconds
