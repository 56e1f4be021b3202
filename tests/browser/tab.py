"""A tab of a browser, as a person uses it: by what is written on the page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_S: Final = 60
_SWITCHES: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--no-first-run", "--lang=en-GB",
)  # fmt: skip


@contextmanager
def opened(url: str, zone: str) -> Iterator[Tab]:
    """Start a browser.

    Args:
        url: of the gateway.
        zone: the viewer's time zone.
    """
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for switch in _SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
        yield Tab(driver, url)
    finally:
        driver.quit()


class Tab:
    """One tab.

    Attributes:
        driver: the browser.
        url: of the gateway.
    """

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.url = driver, url

    def begin(self) -> None:
        """Forget what was before."""
        self.driver.get("about:blank")
        self.look(1440, dark=False)
        self.complaints()
        self.asked_elsewhere()

    def look(self, width: int, dark: bool) -> None:
        """Choose how wide the screen is, and whether it is dark."""
        metrics = {
            "width": width,
            "height": 1000 if width > 600 else 844,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})

    def go(self, path: str) -> None:
        """Open a page, and wait until it shows something."""
        self.driver.get(self.url + path)
        self.until(lambda: self.find("h1").text)

    def find(self, selector: str) -> WebElement:
        """The first element; it is an error if there is none."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All elements that can be seen."""
        return [each for each in self.driver.find_elements(By.CSS_SELECTOR, selector) if each.is_displayed()]

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for a condition, and return what it returned; it may fail while the page changes."""

        def met(_: object) -> Any:
            try:
                return condition()
            except StaleElementReferenceException:
                return None

        return WebDriverWait(self.driver, PATIENCE_S, 0.05).until(met)

    def says(self, text: str, selector: str = "body") -> None:
        """Wait until the page says something."""
        self.until(lambda: any(text in each.text for each in self.all(selector)))

    def says_no_more(self, text: str, selector: str = "body") -> None:
        """Wait until the page does not say something any more."""
        self.until(lambda: not any(text in each.text for each in self.all(selector)))

    def scope(self) -> WebElement:
        """The dialog that is on top, else the page."""
        return (self.all("dialog") or [self.find("body")])[-1]

    def field(self, label: str) -> WebElement:
        """The field whose label is this, or begins so."""

        def labelled() -> WebElement | None:
            labels = [
                each for each in self.scope().find_elements(By.TAG_NAME, "label") if each.is_displayed()
            ]
            for each in sorted(labels, key=lambda found: found.text != label):
                if each.text.startswith(label):
                    return self.driver.find_element(By.ID, each.get_attribute("for") or "")
            return None

        found: WebElement = self.until(labelled)
        return found

    def write(self, label: str, text: str) -> None:
        """Write into a field, in place of what it held."""
        found = self.field(label)
        found.clear()
        found.send_keys(text)

    def button(self, text: str) -> WebElement:
        """The button or link of this text."""

        def written() -> WebElement | None:
            for each in self.scope().find_elements(By.CSS_SELECTOR, "button, a"):
                if each.text == text and each.is_displayed():
                    return each
            return None

        found: WebElement = self.until(written)
        return found

    def press(self, text: str) -> None:
        """Press a button, or follow a link."""

        def pressed() -> bool:
            self.button(text).click()
            return True

        self.until(pressed)

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, text: str) -> None:
        """Go by the tabulator to what says something."""
        for _ in range(200):
            self.keys(Keys.TAB)
            if self.driver.switch_to.active_element.text == text:
                return
        raise AssertionError(f"the tabulator does not come to {text!r}")

    def complaints(self) -> list[str]:
        """What the console has said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def asked_elsewhere(self) -> list[str]:
        """Addresses that were asked for since the last call, other than the gateway's."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        own = urlsplit(self.url).netloc
        return [
            url
            for url in found
            if urlsplit(url).netloc != own and urlsplit(url).scheme in ("http", "https", "ws")
        ]
