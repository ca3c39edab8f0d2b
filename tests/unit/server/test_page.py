"""The page's paths: what is answered to whom, and when."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import Context
from leasectl.engines.rules.membership import Cordon
from leasectl.leases.service import Service
from leasectl.model import Lease
from leasectl.pools.overview import (
    Overview,
    ShownLease,
    ShownMark,
    ShownMembership,
    ShownPool,
    ShownResource,
    ShownWaiter,
    parse_holder,
)
from leasectl.server.page.editions import Edition, Editions
from leasectl.server.page.sections import sections_of
from leasectl.server.page.view import View, parse_view
from leasectl.state.directory import State
from tests.kit.faults.raw_client import Got, RawClient
from tests.kit.serving import Serve, Serving
from tests.kit.support import Cli, ManualClock
from tests.kit.waits import PATIENCE_SECONDS

CHANGES = "/leasectl/page/changes"


def edition_of(page: Got) -> str:
    """Which edition a page shows."""
    found = re.search('data-edition="([^"]+)"', page.text)
    assert found
    return found[1]


def ask_for_changes(client: RawClient, edition: str, **headers: str) -> None:
    client.send("GET", f"{CHANGES}?after={edition}", **headers)


def news(got: Got) -> dict[str, Any]:
    assert got.status == 200
    assert got.headers["content-type"] == "application/json"
    told: dict[str, Any] = json.loads(got.text)
    return told


class TestThePage:
    def test_what_a_browser_keeps_to(self, shared: Serving) -> None:
        with shared.connect() as client:
            got = client.ask("GET", "/")
        assert (got.status, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert got.headers["cache-control"] == "no-store"
        assert got.headers["x-content-type-options"] == "nosniff"
        rules = dict(each.split(" ", 1) for each in _policy(got))
        assert rules["default-src"] == "'none'"
        assert rules["connect-src"] == rules["form-action"] == "'self'"
        assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
        for kind in ("script-src", "style-src"):
            assert re.fullmatch("'sha256-[A-Za-z0-9+/]{43}='", rules[kind])
        assert not re.search(r"\son\w+=|style=|https?://(?!www\.w3\.org)", got.text)
        assert "set-cookie" not in got.headers

    def test_it_is_packed_for_who_can_unpack_it(self, shared: Serving) -> None:
        with shared.connect() as client:
            client.send("GET", "/", Accept_Encoding="br, gzip;q=0.8", Connection="close")
            head, _, body = client.read_to_end().partition(b"\r\n\r\n")
        assert b"content-encoding: gzip" in head
        assert b"vary: Accept-Encoding" in head
        assert b"</html>" in gzip.decompress(body)


class TestChanges:
    def test_who_has_seen_all_waits_until_there_is_more(self, cli: Cli, serve: Serve) -> None:
        cli.pool("T")
        cli.pool("U")  # of a pool that was used, a chart goes on with the time
        server = serve()
        with server.connect() as client:
            page = client.ask("GET", "/")
            ask_for_changes(client, edition_of(page))
            client.socket.settimeout(0.5)
            with pytest.raises(socket.timeout):
                client.socket.recv(1)
            client.socket.settimeout(PATIENCE_SECONDS)
            cli.hold("T")
            told = news(client.read_answer())
            assert told["order"] == list(told["changed"]) == ["pools", "pool-T"]
            assert "test@host" in told["changed"]["pool-T"]
            assert told["title"] == "1/4 held · leasectl"
            assert told["edition"] != edition_of(page)

    @pytest.mark.parametrize("edition", ["", "nonsense", "0123abcd.7", "a.b.c", "%ff"])
    def test_who_has_seen_another_server_gets_all(self, shared: Serving, edition: str) -> None:
        with shared.connect() as client:
            client.ask("GET", "/")
            ask_for_changes(client, edition)
            told = news(client.read_answer())
        assert list(told["changed"]) == told["order"]

    def test_whoever_looks_holds_nothing_up(self, cli: Cli, serve: Serve) -> None:
        cli.pool("T")
        server = serve()
        with server.connect() as client, server.connect() as gone:
            edition = edition_of(client.ask("GET", "/"))
            ask_for_changes(gone, edition)
            gone.reset()
            ask_for_changes(client, edition)
            assert server.end().code == 0
            assert client.read_answer().status == 204


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One that asks for a token."""
    folder = tmp_path_factory.mktemp("with-token")
    (folder / "token").write_text("s3cret&=%")
    cli = Cli(folder / "state", folder)
    cli.pool("T")
    yield Serving(cli, "--token-file", str(folder / "token"))
    cli.close()


class TestToken:
    def test_nothing_is_told_without_it(self, server: Serving) -> None:
        with server.connect() as client:
            for path in ("/", CHANGES):
                for header in ({}, {"Authorization": "Bearer no"}, {"Cookie": _cookie(server, "")}):
                    got = client.ask("GET", path, **header)
                    assert (got.status, got.headers["www-authenticate"]) == (401, "Bearer")
                    assert 'data-key="' not in got.text
                    assert "pool-T" not in got.text
            assert client.ask("GET", "/", Authorization="Bearer s3cret&=%").status == 200

    def test_a_browser_signs_in_and_out(self, server: Serving) -> None:
        with server.connect() as client:
            wrong = client.ask("POST", "/", "token=s3cret")
            assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
            assert "isn't this server's token" in wrong.text
            right = client.ask("POST", "/", "token=s3cret%26%3D%25")
            assert (right.status, right.headers["location"]) == (303, "./")
            cookie, *attributes = right.headers["set-cookie"].split("; ")
            assert set(attributes) == {"Max-Age=43200", "HttpOnly", "SameSite=Strict"}
            assert "s3cret" not in cookie
            assert client.ask("GET", "/", Cookie=cookie).status == 200
            ask_for_changes(client, "", Cookie=cookie)
            assert news(client.read_answer())["order"] == ["pools"]
            out = client.ask("POST", "/", "out=1", Cookie=cookie)
            assert "Max-Age=0" in out.headers["set-cookie"]

    def test_signing_in_gives_nobody_leases(self, server: Serving) -> None:
        with server.connect() as client:
            cookie = _signed_in(client)
            assert client.acquire("T", Cookie=cookie).status == 401
            assert client.ask("GET", "/metrics", Cookie=cookie).status == 401
            assert client.ask("GET", "/leasectl/v1/status", Cookie=cookie).status == 401

    def test_what_is_made_up_or_of_another_server_doesnt_count(
        self, server: Serving, serve: Serve, tmp_path: Path
    ) -> None:
        with server.connect() as client:
            name, _, value = _signed_in(client).partition("=")
            until, _, signature = value.partition(".")
            assert client.ask("GET", "/", Cookie=f"{name}={value}").status == 200
            for made_up in (
                _signed_in_elsewhere(serve, tmp_path),
                f"{int(until) + 1}.{signature}",
                f"{until}.",
                until,
                f"{until}.{'0' * len(signature)}",
                "é.é",
            ):
                assert client.ask("GET", "/", Cookie=f"{name}={made_up}").status == 401

    def test_who_comes_by_tls_is_sent_a_cookie_for_that(self, server: Serving) -> None:
        with server.connect() as client:
            got = client.ask("POST", "/", "token=s3cret%26%3D%25", X_Forwarded_Proto="https")
        assert "; Secure" in got.headers["set-cookie"]

    def test_what_isnt_the_form_is_refused(self, server: Serving) -> None:
        for body, header, status in (
            ("token=s3cret%26%3D%25", {"Sec-Fetch-Site": "cross-site"}, 403),
            ("token=" + "x" * 20_000, {}, 400),
            ("", {}, 401),
            ("&".join(["token=x"] * 1000), {}, 401),
            ("\u00e9" * 10, {}, 401),
        ):
            with server.connect() as client:
                got = client.ask("POST", "/", body, **header)
            assert (got.status, "set-cookie" in got.headers) == (status, False)


def _signed_in(client: RawClient) -> str:
    got = client.ask("POST", "/", "token=s3cret%26%3D%25")
    return got.headers["set-cookie"].partition(";")[0]


def _signed_in_elsewhere(serve: Serve, folder: Path) -> str:
    """What a browser has that has signed in at another server with the same token."""
    (folder / "token").write_text("s3cret&=%")
    with serve("--token-file", str(folder / "token")).connect() as client:
        return _signed_in(client).partition("=")[2]


def _cookie(server: Serving, value: str) -> str:
    return f"leasectl-page-{server.url.rpartition(':')[2]}={value}"


def _policy(got: Got) -> list[str]:
    return got.headers["content-security-policy"].split("; ")


@pytest.mark.parametrize(
    ("url", "is_link"), [("https://ci/1?a=<b>", True), ("javascript:alert(1)", False)]
)
def test_the_page_links_a_holder_to_its_build_by_http_only(url: str, is_link: bool) -> None:
    identity = "job/1/host/T-abc"
    lease = Lease("T--00", 1, 1, 1, identity, 0.0, 0.0, None, 0, labels=(("build", url),))
    held = ShownResource("T--00", ShownLease(lease, parse_holder(identity)))
    overview = Overview("local:", 0.0, (ShownPool("T", (held,), ()),))
    page = "".join(str(each.write(1.0, View())) for each in sections_of(overview, {}))
    link = '<a href="https://ci/1?a=&lt;b&gt;" rel="noopener noreferrer">'
    assert (link in page) is is_link
    assert "javascript:" not in page


class TestView:
    def test_a_query_says_what_is_wanted_and_a_link_says_it_again(self) -> None:
        view = parse_view({"pool": "T", "text": " é&b ", "sort": "-held-for", "range": "6h"})
        assert view == View("T", "é&b", "-held-for", "6h")
        query = dict(parse_qsl(view.link().removeprefix("?")))
        assert parse_view(query) == view
        assert view.link(pool="", text="", sort="", range="1h") == "./"

    def shown(self, view: View) -> list[tuple[str, str]]:
        leases = [
            Lease(f"T--{n:02d}", 1, 1, 1, f"{job}/1/host/T-{n}", float(n), 0.0, None, 0)
            for n, job in enumerate(("b-job", "a-job", "größe"))
        ]
        held = [
            ShownResource(each.name, ShownLease(each, parse_holder(each.holder_identity)))
            for each in leases
        ]
        pools = (ShownPool("T", tuple(held), ()), ShownPool("U", (ShownResource("U--0"),), ()))
        sections = sections_of(Overview("local:", 0.0, pools), {})
        page = "".join(each.write(1.0, view) for each in sections if each.is_in(view))
        found: list[tuple[str, str]] = re.findall(
            '<bdi class="who">([^<]*)<|<h2 id="name-(U)', page
        )
        return found

    def test_rows_are_those_that_are_searched_for_in_the_order_that_is_wanted(self) -> None:
        jobs = [first for first, _ in self.shown(View())]
        assert jobs == ["b-job", "a-job", "größe"]
        by_holder = [first for first, _ in self.shown(View(sort="holder"))]
        assert by_holder == ["a-job", "b-job", "größe"]
        assert [first for first, _ in self.shown(View(sort="-resource"))] == jobs[::-1]
        assert self.shown(View(text="GRÖSSE")) == [("größe", "")]
        assert self.shown(View(text="T--01")) == [("a-job", "")]
        assert self.shown(View(text="nobody")) == []
        assert self.shown(View(pool="U")) == [("", "U")]  # which is in the summary only
        assert self.shown(View(pool="U", text="b-job")) == [("", "U")]

    def test_a_pool_that_takes_no_holder_says_so_and_why(self) -> None:
        why = Cordon("me@host/host", 0.0, "disk <full>")
        resource = ShownResource("T--0", None, ShownMembership(cordoned=True, cordon=why))
        sections = sections_of(Overview("local:", 0.0, (ShownPool("T", (resource,), ()),)), {})
        summary, section = (each.write(0.0, View(pool="T")) for each in sections)
        assert '<span class="note">cordoned</span>' in summary
        assert '<span class="note">cordoned</span>' in section
        assert "disk &lt;full&gt;, by me@host since 1970-01-01 00:00 UTC" in section


class TestEditions:
    def test_who_asks_later_is_told_the_time_of_then(
        self, state_dir: Path, manual_clock: ManualClock
    ) -> None:
        def open_service() -> Service:
            caller = Caller("job/1", "host")
            state = State.open(str(state_dir))
            return Service(state, Context("local:", caller=caller, clock=manual_clock.clock))

        editions = Editions(open_service, needs_token=False)
        editions.look()
        first = editions.news("")
        assert editions.news("other.5") is first
        manual_clock.advance(600.0)
        editions.look()
        told = [json.loads(each.plain)["at"] for each in (first, editions.news(""))]
        assert told[1] - told[0] == 600.0
        editions.close()


class TestEdition:
    def overview(self, capacity: int, at: float) -> Overview:
        names = (f"T--{n:02d}" for n in range(capacity))
        return Overview("local:", at, (ShownPool("T", tuple(map(ShownResource, names)), ()),))

    def test_time_alone_makes_no_other(self) -> None:
        first = Edition("s").succeeded_by(sections=sections_of(self.overview(2, 0.0), {}))
        again = first.succeeded_by(sections=sections_of(self.overview(2, 60.0), {}))
        other = again.succeeded_by(sections=sections_of(self.overview(3, 60.0), {}))
        assert (first.name, again.name, other.name) == ("s.1", "s.1", "s.2")
        assert list(json.loads(other.news(other.last_seen("s.1"), 60.0))["changed"]) == ["pools"]
        assert json.loads(other.news(other.last_seen("s.2"), 60.0))["changed"] == {}


class TestMemberships:
    def shown(self, *resources: ShownResource, queue: tuple[ShownWaiter, ...] = ()) -> str:
        lease = Lease("T--09", 1, 1, 1, "me@host/host/T-aB3xYz", 0.0, 0.0, None, 0)
        held = ShownResource(
            "T--09",
            ShownLease(lease, parse_holder(lease.holder_identity)),
            ShownMembership(cordoned=True, moves_to="U"),
            (("region", "eu"),),
            ShownMark("marked", "me"),
        )
        pool = ShownPool("T", (*resources, held), queue, default_grace_seconds=120.0)
        _, section = sections_of(Overview("local:", 0.0, (pool,)), {})
        return section.write(0.0, View(pool="T"))

    def test_are_noted_at_what_is_held_and_at_what_is_free(self) -> None:
        page = self.shown(
            ShownResource("T--00", None, ShownMembership(cordoned=True), (("a", "b"),)),
            ShownResource("T--01", None, ShownMembership(by_default=True, held_back_seconds=5.0)),
            ShownResource("T--02"),
        )
        notes = re.findall('class="note"[^>]*>([^<]*)<', page)
        held, free = ["asked back", "cordoned", "moves to U"], ["cordoned", "held back"]
        assert notes == [*held, *free, "by default"]
        assert re.findall('class="where" title="([^"]*)"', page) == ["region=eu", "a=b"]
        assert "Free, but cordoned or held back (2)" in page and "<summary>1 free</summary>" in page
        assert "default pool, grace 2m" in page

    def test_cant_bring_markup_in(self) -> None:
        hostile = (("k", "<script>\"'&\x1b\u202e"),)
        where = (("k", "<b>", False),)
        waiter = ShownWaiter(1, 1, parse_holder("a/b/c"), 1, None, 0.0, where=where)
        page = self.shown(ShownResource("T--00", None, properties=hostile), queue=(waiter,))
        assert "<script>" not in page and "<b>" not in page
        assert "k=&lt;script&gt;&#34;&#39;&amp;" in page and "k!=&lt;b&gt;" in page
        assert "\x1b" not in page and "\u202e" not in page
