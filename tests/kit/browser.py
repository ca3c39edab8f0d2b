"""Debian's Chromium without a window, for tests of what a person sees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# Without these it asks its makers' hosts for this and that by itself.
_QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
# In a container, and as root, its own sandbox can't be made.
_BARE = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Browser:
    """A browser with one tab.

    Args:
        driver: Of selenium.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Go to a page; returns when it has loaded."""
        self.driver.get(url)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, as JSON."""
        return self.driver.execute_script(f"return ({expression})")

    def texts(self, selector: str) -> list[str]:
        """The text of each element that a selector of CSS finds, as it is in the document."""
        found: list[str] = self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
        )
        return found

    def text(self) -> str:
        """What the page says where it can be seen."""
        found: str = self.evaluate("document.body.innerText")
        return found

    def resize(self, width: int, height: int) -> None:
        """Set the size of the screen in pixels; a narrow one is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        """Prefer ``dark`` or ``light`` pages."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def run_scripts(self, are_run: bool) -> None:
        """Run the scripts of the pages that are opened from here on, or don't."""
        disabled = {"value": not are_run}
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", disabled)

    def has_dialog(self) -> bool:
        """Tell whether the page has opened an alert or the like."""
        from selenium.common.exceptions import NoAlertPresentException

        try:
            self.driver.switch_to.alert.dismiss()
        except NoAlertPresentException:
            return False
        return True

    def asked(self) -> list[str]:
        """The URLs that were asked for on the network since the last call."""
        messages = [json.loads(each["message"]) for each in self.driver.get_log("performance")]
        sent = [m["message"] for m in messages]
        urls = [m["params"]["request"]["url"] for m in sent if m["method"] == _REQUEST]
        return [url for url in urls if urlsplit(url).scheme not in ("data", "chrome")]

    def complaints(self) -> list[str]:
        """What the browser has said of the pages since the last call: errors, refused content."""
        return [str(each["message"]) for each in self.driver.get_log("browser")]

    def picture(self, path: Path) -> None:
        """Put what is seen into a PNG file."""
        self.driver.save_screenshot(str(path))


_REQUEST = "Network.requestWillBeSent"


@contextmanager
def browser_in(folder: Path) -> Iterator[Browser]:
    """Start a browser that keeps what it keeps in a folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for each in (*_QUIET, *_BARE, f"--user-data-dir={folder}"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = webdriver.ChromeService("/usr/bin/chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
