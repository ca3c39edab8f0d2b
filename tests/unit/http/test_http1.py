"""Answers are read as h11 reads them, and queries are written as the standard library would."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Callable
from urllib.parse import urlencode

import h11
import pytest

from leasectl.http.http1 import (
    AnswerReader,
    BadUrl,
    ProtocolError,
    Target,
    parse_url,
    request_head,
)
from leasectl.http.messages import Answer, encode_query, redirection

LINES = 1500


def receiving(pieces: Sequence[bytes]) -> Callable[[int], bytes]:
    left = [each for each in pieces if each]

    def receive(most: int) -> bytes:
        if not left:
            return b""
        piece, rest = left[0][:most], left[0][most:]
        if rest:
            left[0] = rest
        else:
            del left[0]
        return piece

    return receive


def read(said: bytes, pieces: Sequence[bytes] | None = None) -> tuple[int, dict[str, str], bytes]:
    reader = AnswerReader(receiving([said] if pieces is None else pieces))
    head = reader.head()
    return head.status, dict(head.headers), b"".join(reader.body())


def read_by_h11(said: bytes) -> tuple[int, dict[str, str], bytes] | None:
    """What h11 makes of an answer; None where it takes it for none."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(
        h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")])
    )
    peer.send(h11.EndOfMessage())
    status, headers, body = 0, dict[str, str](), b""
    try:
        peer.receive_data(said)
        peer.receive_data(b"")
        while True:
            event = peer.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
                for raw, value in event.headers:
                    name, text = raw.decode(), value.decode("latin-1")
                    headers[name] = f"{headers[name]}, {text}" if name in headers else text
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, headers, body
            elif isinstance(event, h11.ConnectionClosed) or event in (h11.NEED_DATA, h11.PAUSED):
                return None
    except h11.RemoteProtocolError:
        return None


def answer_by(luck: random.Random) -> bytes:
    """What a server might say, and sometimes isn't quite right."""
    body = bytes(luck.randrange(256) for _ in range(luck.choice((0, 1, 5, 300))))
    head = [
        luck.choice((b"HTTP/1.1 200 OK", b"HTTP/1.1 404 ", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 -"))
    ]
    head += luck.sample(
        [b"Server: x", b"X-A: 1", b"X-A:2", b"Date:  now ", b"Connection: close"], 2
    )
    framing = luck.random()
    if framing < 0.4:
        head.append(b"Content-Length: %d" % len(body))
        said = body
    elif framing < 0.8:
        head.append(b"Transfer-Encoding: chunked")
        said, at = b"", 0
        while at < len(body):
            size = luck.randint(1, 100)
            piece = body[at : at + size]
            said += b"%x%s\r\n%s\r\n" % (len(piece), luck.choice((b"", b";a=b")), piece)
            at += size
        said += luck.choice((b"0\r\n\r\n", b"0\r\nX-T: 1\r\n\r\n"))
    else:
        said = body
    before = luck.choice((b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
    whole = before + b"\r\n".join(head) + b"\r\n\r\n" + said
    if luck.random() < 0.3:  # cut, or changed somewhere
        at = luck.randrange(len(whole))
        whole = whole[:at] if luck.random() < 0.5 else whole[:at] + b"\0" + whole[at + 1 :]
    return whole


def test_what_h11_reads_is_read_alike() -> None:
    luck, alike, refused = random.Random(11), 0, 0
    for _ in range(LINES):
        said = answer_by(luck)
        expected = read_by_h11(said)
        pieces, at = [], 0
        while at < len(said):
            size = luck.choice((1, 2, 7, 1000))
            pieces.append(said[at : at + size])
            at += size
        if expected is None:
            refused += 1
            continue
        assert read(said, pieces) == expected, said
        alike += 1
    assert min(alike, refused) > LINES / 20


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "disconnected without an answer"),
        (b"HTTP/1.1 200 OK\r\n", "before its answer was complete"),
        (b"\x15\x03\x01\x00\x02\x02\x16\n\n", "illegal status line"),
        (b"HTTP/2 200\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 abc\r\n\r\n", "illegal status line"),
        (b"SSH-2.0-x\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "illegal header line"),
        (b"HTTP/1.1 200 OK\r\na b: c\r\n\r\n", "illegal header line"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, "too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "invalid Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab", "invalid Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "before its answer was complete"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "wasn't requested"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n", "chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n", "chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n", "longer than"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "complete"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "before its answer was complete|without an answer"),
        (b"HTTP/1.1 103 Early\r\n\r\n" * 1000, "only interim answers"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 50_000,
            "the headers of its answer are too long",
        ),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(said: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        read(said)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"\x15\x03\x01 \x1b[2J\r\n\r\n", 'illegal status line: "\\x15\\x03\\x01 \\x1b[2J"'),
        (b"HTTP/1.1 200 OK\r\n\x1b[2J \xff\r\n\r\n", 'illegal header line: "\\x1b[2J \ufffd"'),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: \x1b1\r\n\r\n",
            'Content-Length in its answer: "\\x1b1"',
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \x1bx\r\n\r\n",
            "its answer is encoded by \\x1bx, ",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\x1bz\r\n",
            'invalid chunk size in its answer: "\\x1bz"',
        ),
    ],
)
def test_what_was_said_instead_is_shown_as_text_and_harmless(said: bytes, shown: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        read(said)
    assert shown in str(raised.value)
    assert str(raised.value).isprintable()


def test_a_header_may_go_on_in_the_next_line() -> None:
    said = b"HTTP/1.1 200 OK\r\nX-A: 1,\r\n  2\r\nContent-Length: 0\r\n\r\n"
    assert read(said) == (200, {"x-a": "1, 2", "content-length": "0"}, b"")
    assert read_by_h11(said) == read(said)


@pytest.mark.parametrize(
    ("said", "leaves"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Close\r\n\r\nab", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", False),
        (b"HTTP/1.1 200 OK\r\n\r\nab", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200 OK", False),
    ],
)
def test_a_connection_is_left_to_others_where_it_can_be(said: bytes, leaves: bool) -> None:
    reader = AnswerReader(receiving([said]))
    reader.head()
    assert not reader.leaves_connection
    list(reader.body())
    assert reader.leaves_connection is leaves


def test_pieces_of_a_chunk_are_handed_on_as_they_come() -> None:
    said = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"a\r\nhel",
        b"lo wo",
        b"rl\r\n",
    ]
    reader = AnswerReader(receiving(said))
    reader.head()
    body = reader.body()
    assert [next(body), next(body), next(body)] == [b"hel", b"lo wo", b"rl"]


def test_a_request_is_one_for_h11() -> None:
    head = request_head(
        "PUT", parse_url("https://x:8/a?b=c"), [("A", "b"), ("Content-Length", "2")]
    )
    peer = h11.Connection(h11.SERVER)
    peer.receive_data(head + b"{}")
    request = peer.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target) == (b"PUT", b"/a?b=c")
    assert dict(request.headers) == {b"host": b"x:8", b"a": b"b", b"content-length": b"2"}


@pytest.mark.parametrize(
    "header", [("A", "b\r\nC: d"), ("A\n", "b"), ("", "b"), ("A", "\0"), ("A b", "c")]
)
def test_no_header_begins_another(header: tuple[str, str]) -> None:
    with pytest.raises(ProtocolError, match="can't be sent"):
        request_head("GET", parse_url("http://x"), [header])


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://x", Target(False, "x", 80, "x", "/")),
        ("https://x:443/a/b?c=d#e", Target(True, "x", 443, "x", "/a/b?c=d")),
        ("https://10.0.0.1:6443", Target(True, "10.0.0.1", 6443, "10.0.0.1:6443", "/")),
        ("http://[::1]:8080?a=http://b", Target(False, "::1", 8080, "[::1]:8080", "/?a=http://b")),
        ("http://[::1]/", Target(False, "::1", 80, "[::1]", "/")),
        (
            "http://bücher.example/ü b%20",
            Target(False, "xn--bcher-kva.example", 80, "xn--bcher-kva.example", "/%C3%BC%20b%20"),
        ),
    ],
)
def test_where_a_url_leads(url: str, target: Target) -> None:
    assert parse_url(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "x",
        "http://",
        "http://:80",
        "http://x:99999",
        "http://x:a",
        "http://a@b/",
        "http://a b/",
        "http://" + "ü" * 200,
    ],
)
def test_what_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        parse_url(url)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"limit": "500", "labelSelector": "leasectl.dev/pool=T,leasectl.dev/kind in (pool,ticket)"},
        {"continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEi+/=", "a b": "c&d"},
        {"all": "".join(map(chr, range(256))) + "€\U0001f600", "": ""},
    ],
)
def test_a_query_is_as_urlencode_has_it(parts: dict[str, str]) -> None:
    assert encode_query(parts) == urlencode(parts)


@pytest.mark.parametrize(
    ("status", "location", "said"),
    [
        (302, "https://login/oauth?state=secret", "it redirects to https://login/oauth, which"),
        (307, "/other\x1b[2J", "it redirects to /other"),
        (302, "http://me:pw@login/a@b", "it redirects to http://login/a@b, which"),
        (302, "//me:pw@login", "it redirects to //login, which"),
        (302, "login?me=pw", "it redirects to login, which"),
        (302, "", ""),
        (200, "https://login/", ""),
        (404, "https://login/", ""),
    ],
)
def test_where_an_answer_leads_is_said_without_a_query(
    status: int, location: str, said: str
) -> None:
    found = redirection(Answer(status, "", {"location": location}))
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert "secret" not in found
    assert found.isprintable()
