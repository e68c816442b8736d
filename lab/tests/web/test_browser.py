"""The web page in a real browser, Chromium, used by a tester."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait
from web_visitor import OWNER_TOKEN, TESTER

from fabricated_runs import fabricated_run
from ringroad_lab.record import RunRecord
from ringroad_lab.store import queries
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.application import make_application
from ringroad_lab.web.reviews import Review, change_review
from ringroad_lab.web.settings import WebSettings

CHROMIUM = Path("/usr/bin/chromium")
CHROMEDRIVER = Path("/usr/bin/chromedriver")
WAIT_S = 30
DAY_S = 86_400.0
# The folder for screenshots that are kept for inspection.
KEPT = os.environ.get("RINGROAD_LAB_SCREENSHOTS")


class Browser:
    """A browser that shows the page."""

    def __init__(self, driver: webdriver.Chrome, address: str, screenshots: Path) -> None:
        """Take the browser, the address of the page, and the folder for screenshots."""
        self.driver = driver
        self.address = address
        self.screenshots = screenshots

    def open(self, path: str) -> None:
        """Open a page."""
        self.driver.get(self.address + path)

    def find(self, selector: str) -> WebElement:
        """Wait for an element."""
        self.wait(lambda: self.all(selector))
        return self.all(selector)[0]

    def all(self, selector: str) -> list[WebElement]:
        """Return all elements that match."""
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait for a condition; the page can change meanwhile."""
        ignored = (NoSuchElementException, StaleElementReferenceException)
        WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05, ignored_exceptions=ignored).until(lambda _: condition())

    def leave(self, element: WebElement) -> None:
        """Click an element that leads to another page, and wait until the page is loaded."""
        page = self.driver.find_element(By.TAG_NAME, "html")
        element.click()
        self.wait(lambda: page != self.driver.find_element(By.TAG_NAME, "html"))
        self.wait(lambda: self.driver.execute_script("return document.readyState") == "complete")

    def log_in(self) -> None:
        """Log in."""
        self.open("/login")
        self.find("[name=token]").send_keys(OWNER_TOKEN)
        self.leave(self.find("main button"))

    def picture(self, name: str) -> None:
        """Take a picture of the whole page."""
        path = self.screenshots / f"{name}.png"
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(shot["data"]))
        if KEPT:
            shutil.copy(path, KEPT)

    def is_scrolled_sideways(self) -> bool:
        """Whether the page is wider than the window."""
        return bool(self.driver.execute_script("return document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def complaints(self) -> list[str]:
        """Return the browser's log messages since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def runs(store: ResultStore) -> list[RunRecord]:
    """Forty runs of one scenario; the last twelve are slower."""
    records = [
        fabricated_run(
            name="P2P_NIGHTLY",
            capacities_fps={"ovs": 240_000.0 * (0.93 if night >= 28 else 1), "ringroad": 5_200_000.0},
            seed=night,
            started_at=1_790_000_000.0 + night * DAY_S,
            versions={"ovs-vswitchd": "3.2.0" if night >= 28 else "3.1.0"},
            repetitions=8,
            labels={"version": "3.2.0" if night >= 28 else "3.1.0", "branch": "main"},
        )
        for night in range(40)
    ]
    store.add_runs(records)
    change_review(store, records[27].run_id, Review(verdict=queries.TesterVerdict.PASS), f"user {TESTER}", 0)
    return records


@pytest.fixture
def address(store: ResultStore) -> Iterator[str]:
    """A server of the store."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(
            uvicorn.Config(make_application(store, WebSettings(owner=TESTER, owner_token=OWNER_TOKEN)), log_level="warning", ws="none")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A browser without a window."""
    for program in (CHROMIUM, CHROMEDRIVER):
        assert program.exists(), f"{program} is missing: apt-get install chromium chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(CHROMEDRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def browser(driver: webdriver.Chrome, address: str, tmp_path: Path) -> Browser:
    """The browser with a desktop screen, without cookies."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser = Browser(driver, address, tmp_path)
    browser.complaints()
    return browser


def test_a_tester_works_through_the_pages(browser: Browser, runs: list[RunRecord]) -> None:
    browser.open("/runs?scenario=P2P_NIGHTLY")
    assert browser.find("h1").text == "Log in"
    browser.picture("login")
    browser.find("[name=token]").send_keys(OWNER_TOKEN + Keys.ENTER)
    browser.wait(lambda: browser.all("nav[aria-label='More results']"))
    assert "40 runs" in browser.find("main").text
    browser.picture("results")

    # Filter
    browser.find("[name=version]").send_keys("3.2")
    browser.leave(browser.find("form.filters button"))
    assert "12 runs" in browser.find("main").text
    assert len(browser.all("table.blocks tbody tr")) == 12

    # Compare the newest with the last that passed
    browser.open("/runs")
    candidate, baseline = runs[-1].run_id, runs[27].run_id
    browser.find(f"[name=candidate][value='{candidate}']").click()
    browser.find(f"[name=baseline][value='{baseline}']").click()
    browser.leave(browser.find("form .bar button"))
    assert "regression" in browser.find("#summary").text
    assert "3.2.0" in browser.find("main").text
    browser.picture("comparison")

    # The trend, and its change point
    browser.open("/trends?scenario=P2P_NIGHTLY&method=throughput&dut=ovs&frame=64")
    browser.find(".plot[data-drawn=true] .main-svg")
    assert browser.find("#summary").text.startswith("1 change point in 40 runs")
    assert "regression" in browser.find("#steps tbody").text
    first_slow = browser.find("#steps tbody a").get_attribute("href")
    assert first_slow == f"{browser.address}/runs/{runs[28].run_id}"
    browser.picture("trend")
    Select(browser.find("[name=dut]")).select_by_visible_text("ringroad")
    browser.wait(lambda: "No change point" in browser.find("#summary").text)

    # A run, and the tester's review
    browser.open(f"/runs/{runs[28].run_id}")
    browser.picture("run")
    Select(browser.find("[name=verdict]")).select_by_visible_text("fail")
    browser.find("[name=comment]").send_keys("7 % slower since 3.2.0")
    browser.find("[name=bug_link]").send_keys("https://bugs.example/17")
    browser.leave(browser.find("form.stacked button"))
    assert "fail" in browser.find("#verdict").text
    assert browser.find("#comment").text == "7 % slower since 3.2.0"

    browser.open("/audit")
    log = browser.find("table").text
    assert all(text in log for text in (f"user {TESTER}", "verdict", "fail", "7 % slower since 3.2.0", "https://bugs.example/17"))
    browser.picture("audit")

    browser.leave(browser.find("header form button"))
    assert browser.find("h1").text == "Log in"
    assert browser.complaints() == []


PAGES = ("/runs", "/trends?frame=64&dut=ovs", "/compare?baseline=last-stable&candidate=latest", "/audit", "/beds", "/runs/RUN")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_narrow_screen(browser: Browser, runs: list[RunRecord], scheme: str) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.log_in()
    for page in PAGES:
        path = page.replace("RUN", runs[0].run_id)
        browser.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        )
        browser.open(path)
        if path.startswith("/trends"):
            browser.find(".plot[data-drawn=true] .main-svg")
        assert not browser.is_scrolled_sideways(), path
        assert low_contrasts(browser) == [], path
        browser.picture(f"narrow-{scheme}-{page.strip('/').partition('?')[0].replace('/', '-')}")
    assert browser.complaints() == []


def low_contrasts(browser: Browser) -> list[str]:
    """Return texts with too little contrast to their background (WCAG 2.2, 1.4.3: 4.5 to 1)."""
    found: list[str] = browser.driver.execute_script(CONTRAST)
    return found


CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const luminance = (colour) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
    .map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (colour !== 'rgba(0, 0, 0, 0)' && colour !== 'transparent') return colour;
  }
  return 'white';
};
return [...document.querySelectorAll('body *')]
  .filter((element) => !element.closest('.plot, script') && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .map((element) => {
    const [one, other] = [luminance(getComputedStyle(element).color), luminance(behind(element))].sort((a, b) => b - a);
    return [element.textContent.trim().slice(0, 40), (one + 0.05) / (other + 0.05)];
  }).filter(([, ratio]) => ratio < 4.5).map(([text, ratio]) => `${text}: ${ratio.toFixed(2)}`);
"""


@pytest.mark.usefixtures("run")
def test_the_keyboard_alone_is_enough(browser: Browser) -> None:
    browser.log_in()
    browser.open("/runs")
    first = browser.driver.switch_to.active_element
    first.send_keys(Keys.TAB)
    skip = browser.driver.switch_to.active_element
    assert skip.text == "Skip to the content"
    skip.send_keys(Keys.ENTER)
    browser.wait(lambda: browser.driver.switch_to.active_element.get_attribute("id") == "content")
    seen = []
    for _ in range(10):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        element = browser.driver.switch_to.active_element
        seen.append(element.get_attribute("name"))
        outline = browser.driver.execute_script("return getComputedStyle(arguments[0]).outlineStyle", element)
        assert outline != "none", element.get_attribute("outerHTML")
    assert seen[:5] == ["scenario", "dut", "version", "state", "verdict"]


def test_hostile_texts_run_no_script(browser: Browser, store: ResultStore) -> None:
    hostile = '"><img src=x onerror="document.title=1337"><script>document.title=1337</script>'
    record = fabricated_run(name=hostile, labels={hostile: hostile}, versions={hostile: hostile}, capacities_fps={hostile: 1e6})
    store.add_run(record)
    browser.log_in()
    for path in ("/runs", f"/runs/{record.run_id}", "/trends", f"/compare?baseline={record.run_id}&candidate=1337"):
        browser.open(path)
        browser.find("h1")
        if path == "/trends":
            browser.find(".plot[data-drawn=true] .main-svg")
        assert "1337" not in browser.driver.title.replace(hostile, "")
        assert browser.all("img") == []


def test_a_full_report_draws_its_charts_and_reaches_nothing_here(browser: Browser, store: ResultStore) -> None:
    record = fabricated_run()
    store.add_run(record)
    browser.log_in()
    browser.open(f"/runs/{record.run_id}/report.html")
    browser.find("svg.chart")

    assert browser.driver.execute_script("return window.origin") == "null"
    assert browser.driver.execute_script("try { return document.cookie } catch (error) { return error.name }") == "SecurityError"
    assert browser.complaints() == []
