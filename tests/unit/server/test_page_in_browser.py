"""What a person sees of the page, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from leasectl.backends.contract import Patience
from leasectl.engines.facts import PoolSettings
from leasectl.leases.acquire import acquire, announce, turn
from leasectl.leases.service import Service
from leasectl.model import Handle, Request
from leasectl.system.poll import Sleep
from tests.kit.browser import Browser, browser_in
from tests.kit.serving import Serve, Serving
from tests.kit.support import Cli
from tests.kit.waits import eventually

HOLDERS, WAITERS = 200, 50
POOL = "azure--install"
PACED = PoolSettings(pace_seconds=3600.0)
# No slash in it: that would end the part of an identity that it is in.
HOSTILE = "<script>alert(1);<img src=x onerror=alert(2)>\"'&amp;"
SCREENS = {"desktop": (1280, 1000), "phone": (375, 812)}
WHITE = "rgb(255, 255, 255)"


class Busy(NamedTuple):
    """A server with a pool that is held and waited for by people with peculiar names."""

    url: str
    cli: Cli
    handles: list[str]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser_in(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    folder = tmp_path_factory.mktemp("busy")
    cli = Cli(folder / "state", folder)
    with ExitStack() as stack:
        stack.callback(cli.close)
        service = stack.enter_context(cli.service(owner=f"pull-ci-{HOSTILE}/1234"))
        service.pools.create_pool(POOL, [f"{POOL}--{n:03d}" for n in range(HOLDERS)])
        service.pools.create_pool("paced", ["paced--00", "paced--01"], settings=PACED)
        service.pools.create_pool("idle", ["idle--00"])
        _hold(service, "paced")
        handles = [_hold(service, POOL) for _ in range(HOLDERS)]
        for number in range(WAITERS):
            stack.callback(_wait(service, number).close)
        yield Busy(Serving(cli).url, cli, handles)


def _hold(service: Service, pool_type: str) -> str:
    handle = acquire(service, Request(pool_type), patience=Patience(0))
    announce(service, handle)
    return handle.id


def _wait(service: Service, number: int) -> Generator[Sleep, set[int], Handle]:
    """Have this process wait in the pool's queue; it never comes to claim."""
    request = Request(POOL, priority=5 if number == WAITERS - 1 else 0)
    steps = turn(service, request, handle_id=f"{POOL}-w{number:05d}", patience=Patience())
    next(steps)
    return steps


@pytest.fixture
def page(browser: Browser, busy: Busy) -> Busy:
    """The page, as it opens on a large screen."""
    browser.resize(*SCREENS["desktop"])
    browser.run_scripts(True)
    browser.open(busy.url)
    return busy


def rows(browser: Browser, table: str) -> list[str]:
    return browser.texts(f"#pool-{POOL} table.{table} tbody tr")


class TestWhatItShows:
    def test_everybody_who_holds_and_waits(self, browser: Browser, page: Busy) -> None:
        held, queue = rows(browser, "held"), rows(browser, "queue")
        assert (len(held), len(queue)) == (HOLDERS, WAITERS)
        assert f"--{0:03d}" in held[0]
        assert f"w{WAITERS - 1:05d}" in queue[0]  # the highest priority
        assert all(HOSTILE in each for each in held + queue)
        seen = browser.text()
        assert f"{HOLDERS} of {HOLDERS} held" in seen
        assert f"{WAITERS} waiting" in seen
        assert "next grant in 59m" in seen
        assert f"{HOLDERS - 5} more" in seen
        assert browser.texts("#pool-idle") == []

    def test_what_a_name_holds_is_text(self, browser: Browser, page: Busy) -> None:
        assert not browser.has_dialog()
        assert browser.evaluate("document.querySelectorAll('main script, main img').length") == 0
        assert str(browser.evaluate("document.title")).startswith(f"{HOLDERS + 1}/")
        assert browser.complaints() == []

    def test_the_last_hours(self, browser: Browser, page: Busy) -> None:
        texts = browser.texts(f"#pool-{POOL} .band p:first-child")
        assert texts[0] == f"Held: {HOLDERS} now, at most {HOLDERS} of {HOLDERS}"
        assert texts[1].startswith(f"Waiting: {WAITERS} now")
        assert texts[2] == f"Starts a minute: at most {HOLDERS}"
        drawn = browser.evaluate(
            f"[...document.querySelectorAll('#pool-{POOL} .band path')]"
            ".map(e => e.getBoundingClientRect().height)"
        )
        assert len(drawn) == 3
        assert all(drawn)  # how high depends on when the step began that they are averages of

    def test_a_pools_page_has_a_bar_for_each_lease(self, browser: Browser, page: Busy) -> None:
        browser.open(f"{page.url}/?pool={POOL}&range=15m")
        bars = browser.texts(".timeline .lease title")
        assert len(bars) >= HOLDERS // 2  # of the first hundred resources
        assert all(HOSTILE in each for each in bars)
        assert browser.texts(".timeline .names title")[0] == f"{POOL}--000"
        assert browser.evaluate("document.querySelectorAll('.timeline .wait').length") == 20
        assert f"{WAITERS - 20} waiting requests" in browser.text()
        assert browser.texts(".timeline text.tick")
        assert browser.texts("#pools") == []

    def test_links_sort_and_search_without_scripts(self, browser: Browser, page: Busy) -> None:
        browser.run_scripts(False)
        browser.open(f"{page.url}/?pool={POOL}")
        browser.driver.find_element("css selector", "table.held th.resource a").click()
        browser.driver.find_element("css selector", "table.held th.resource a").click()
        browser.run_scripts(True)
        assert rows(browser, "held")[0].split()[0] == f"--{HOLDERS - 1:03d}"
        browser.open(f"{page.url}/?text={POOL}--007")
        eventually(lambda: browser.texts("#state") == ["live"])
        assert len(rows(browser, "held")) == 1
        browser.open(f"{page.url}/?text=nobody-has-this")
        assert "No pool, lease or request matches." in browser.text()

    def test_without_scripts_it_is_all_there(self, browser: Browser, page: Busy) -> None:
        browser.run_scripts(False)
        browser.open(page.url)
        source = browser.driver.page_source
        browser.run_scripts(True)
        assert source.count("data-key=") >= HOLDERS + WAITERS
        assert "&lt;script&gt;" in source
        assert 'http-equiv="refresh"' in source
        assert "as of " in source  # what the script would have put "live" in its place

    @pytest.mark.parametrize("path", ["", f"/?pool={POOL}"])
    @pytest.mark.parametrize(("screen", "scheme"), zip(SCREENS, ("light", "dark")))
    def test_it_fits_and_can_be_read(
        self, browser: Browser, page: Busy, path: str, screen: str, scheme: str, tmp_path: Path
    ) -> None:
        width, height = SCREENS[screen]
        browser.resize(width, height)
        browser.prefer(scheme)
        browser.open(page.url + path)
        browser.picture(tmp_path / f"{screen}-{scheme}.png")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(WIDEST) <= width
        lowest: dict[str, float] = browser.evaluate(CONTRASTS)
        assert {each: ratio for each, ratio in lowest.items() if ratio < 4.5} == {}
        is_dark = browser.evaluate("getComputedStyle(document.body).backgroundColor") != WHITE
        assert is_dark == (scheme == "dark")


class TestLive:
    def test_a_release_shows_without_a_reload(self, browser: Browser, page: Busy) -> None:
        handle = page.handles[-1]
        browser.evaluate(f"{WATCH_FOR_THE_END_OF}({json.dumps(handle[len(POOL) + 1 :])})")
        page.cli.ok("release", "--handle", handle)
        eventually(lambda: browser.evaluate("window.hasEnded"), what="the page shows the release")

    def test_what_was_opened_stays_open(self, browser: Browser, page: Busy) -> None:
        browser.open(f"{page.url}/?pool={POOL}&sort=-resource")
        more = f"document.getElementById('more-held-{POOL}')"
        browser.evaluate(f"{more}.open = true")
        before = len(rows(browser, "held"))
        page.cli.ok("release", "--handle", page.handles[0])
        eventually(lambda: len(rows(browser, "held")) == before - 1)
        assert browser.evaluate(f"{more}.open") is True
        assert browser.texts("#state") == ["live"]


class TestWhatItAsksFor:
    def test_nothing_of_another_host(self, browser: Browser, page: Busy) -> None:
        browser.asked()
        browser.open(page.url)
        eventually(lambda: any("/leasectl/page/changes" in each for each in browser.asked()))
        browser.open(page.url)
        here = urlsplit(page.url).netloc
        asked = browser.asked()
        assert asked
        assert {urlsplit(each).netloc for each in asked} == {here}


class TestToken:
    def test_without_it_there_is_nothing(
        self, browser: Browser, cli: Cli, serve: Serve, tmp_path: Path
    ) -> None:
        cli.pool("secret-pool")
        (tmp_path / "token").write_text("s3cret")
        server = serve("--token-file", str(tmp_path / "token"))
        browser.open(server.url)
        assert "secret-pool" not in browser.driver.page_source
        _sign_in(browser, "wrong")
        eventually(lambda: "isn't this server's token" in browser.text(), what="it is refused")
        assert "secret-pool" not in browser.driver.page_source
        _sign_in(browser, "s3cret")
        eventually(lambda: "secret-pool" in browser.text(), what="it is let in")
        assert "s3cret" not in browser.driver.current_url
        assert browser.evaluate("document.cookie") == ""
        eventually(lambda: browser.texts("#state") == ["live"])
        browser.driver.find_element("css selector", "footer button").click()
        eventually(lambda: "secret-pool" not in browser.driver.page_source, what="it is left")


def _sign_in(browser: Browser, token: str) -> None:
    field = browser.driver.find_element("name", "token")
    field.send_keys(token)
    field.submit()


# Looks at each second's worth of changes for a row that has gone, and notes when.
WATCH_FOR_THE_END_OF = """(name => {
  window.hasEnded = false;
  new MutationObserver((_, observer) => {
    if (document.querySelector("main").textContent.includes(name)) return;
    window.hasEnded = true;
    observer.disconnect();
  }).observe(document.querySelector("main"), {childList: true, subtree: true});
})"""

# How far to the right anything reaches that isn't hidden, or cut off as the name in a bar is.
WIDEST = """Math.max(...[...document.querySelectorAll("body *")]
  .filter(e => !e.closest(".hidden, thead, .lease") && e.getClientRects().length)
  .map(e => e.getBoundingClientRect().right))"""

# The contrast of each kind of text to what is behind it, as WCAG 2 has it.
CONTRASTS = """(() => {
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const found = numbers(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
  };
  const found = {};
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (e.closest("script, style")) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const kind = e.localName + "." + e.className;
    found[kind] = Math.min(found[kind] ?? 99, ratio);
  }
  return found;
})()"""
