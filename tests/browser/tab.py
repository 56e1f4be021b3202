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
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_S: Final = 60
_SWITCHES: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--no-first-run", "--lang=en-GB",
    # One process shows all pages: to start another one for each took a fifth of the browser's time.
    "--process-per-site", "--disable-site-isolation-trials", "--renderer-process-limit=1",
    "--disable-features=Translate,MediaRouter,OptimizationHints", "--disable-extensions",
)  # fmt: skip

_SEEING: Final = """
const text = (each) => (each.innerText ?? each.textContent).trim();
const seen = (selector, inside) => [...inside.querySelectorAll(selector)].filter((each) =>
  each.checkVisibility({visibilityProperty: true, opacityProperty: true}) && each.getClientRects().length);
const scope = () => seen("dialog", document).at(-1) ?? document.body;
"""
_FIELD: Final = """
const wanted = arguments[0];
const labels = seen("label", scope());
const found = labels.find((each) => text(each) === wanted) ?? labels.find((each) => text(each).startsWith(wanted));
return found ? document.getElementById(found.htmlFor) : null;
"""
_BUTTON: Final = """
const wanted = arguments[0];
return seen("button, a", scope()).find((each) => text(each) === wanted) ?? null;
"""


def started(zone: str) -> webdriver.Chrome:
    """Start a browser whose viewer is in a time zone."""
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for switch in _SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
    return driver


@contextmanager
def opened(url: str, zone: str) -> Iterator[Tab]:
    """Have a browser for a while.

    Args:
        url: of the gateway.
        zone: the viewer's time zone.
    """
    driver = started(zone)
    try:
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

    @contextmanager
    def running(self, script: str) -> Iterator[None]:
        """Have pages that are opened meanwhile run this before anything of their own."""
        made = self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", made)

    def find(self, selector: str) -> WebElement:
        """The first element; it is an error if there is none."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All elements that can be seen."""
        return self._run("return seen(arguments[0], document)", selector)

    def texts(self, selector: str) -> list[str]:
        """The text of all visible elements."""
        return self._run("return seen(arguments[0], document).map(text)", selector)

    def _run(self, script: str, *arguments: str) -> Any:
        """Look at the page as a person does, in one question to the browser."""
        return self.driver.execute_script(_SEEING + script, *arguments)

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
        self.until(lambda: any(text in each for each in self.texts(selector)))

    def says_no_more(self, text: str, selector: str = "body") -> None:
        """Wait until the page does not say something any more."""
        self.until(lambda: not any(text in each for each in self.texts(selector)))

    def field(self, label: str) -> WebElement:
        """The field whose label is this, or begins so."""
        found: WebElement = self.until(lambda: self._run(_FIELD, label))
        return found

    def write(self, label: str, text: str) -> None:
        """Write into a field, in place of what it held."""
        found = self.field(label)
        found.clear()
        found.send_keys(text)

    def button(self, text: str) -> WebElement:
        """The button or link of this text, in the dialog that is on top, or else on the page."""
        found: WebElement = self.until(lambda: self._run(_BUTTON, text))
        return found

    def press(self, text: str) -> None:
        """Press a button, or follow a link."""

        def pressed() -> bool:
            self.button(text).click()
            return True

        self.until(pressed)

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        ActionChains(self.driver, 0).send_keys(*keys).perform()

    def focused(self) -> str:
        """The text of the element with the focus."""
        return str(self._run("return text(document.activeElement)"))

    def tab_to(self, text: str) -> None:
        """Go by the tabulator to what says something."""
        for _ in range(200):
            self.keys(Keys.TAB)
            if self.focused() == text:
                return
        raise AssertionError(f"the tabulator does not come to {text!r}")

    def flaws(self, inside: str = "", rules: tuple[str, ...] = ()) -> list[tuple[str, list[str]]]:
        """What axe, which was run on the page before, finds to keep people from using it.

        Args:
            inside: the first of these elements only.
            rules: these only.
        """
        options = {"runOnly": list(rules)} if rules else {}
        found = self.driver.execute_async_script(
            "axe.run(arguments[0] || document, arguments[1]).then(arguments[2])", inside, options
        )
        return [(each["id"], [node["html"][:160] for node in each["nodes"]]) for each in found["violations"]]

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
