"""The HTML report in a browser without network access."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from fabricated_runs import HOSTILE, fabricated_run, fabricated_throughput
from ringroad_lab.comparison import compare_runs
from ringroad_lab.frame_size import FrameMix, parse_frame_mix
from ringroad_lab.record import DutRecord, LogExcerpt, MeasurementStatus, RunRecord
from ringroad_lab.report.html import HtmlReporter
from ringroad_lab.report.topology_picture import topology_picture

WAIT_S = 60


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Headless Chromium; all its connections go to a proxy that does not exist."""
    for program in ("/usr/bin/chromium", "/usr/bin/chromedriver"):
        if not Path(program).exists():
            pytest.skip(f"{program} is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-background-networking",
        "--disable-dev-shm-usage",
        "--proxy-server=127.0.0.1:9",
        "--window-size=1280,1000",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def open_report(browser: webdriver.Chrome, text: str, folder: Path) -> None:
    """Open a report from disk."""
    file = folder / "report.html"
    file.write_text(text)
    browser.get_log("performance")
    browser.get(file.as_uri())


def requested(browser: webdriver.Chrome) -> set[str]:
    """Return the URL schemes that the page requested."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    # Requests of the browser's own start page can still be in the log.
    return {request["request"]["url"].partition(":")[0] for request in requests if request["documentURL"].startswith("file:")}


_OUTSIDE = """
const wrong = [];
for (const chart of document.querySelectorAll("figure.chart svg")) {
  const whole = chart.getBoundingClientRect();
  for (const part of chart.querySelectorAll("text, path, rect")) {
    const box = part.getBoundingClientRect();
    if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.top < whole.top - 1 || box.bottom > whole.bottom + 1)
      wrong.push(part.outerHTML);
  }
  const labels = [...chart.querySelectorAll(".xtick")].map((label) => label.getBoundingClientRect());
  labels.forEach((box, index) => { if (index && box.left < labels[index - 1].right) wrong.push("labels overlap"); });
}
return wrong;
"""


def rich_run() -> RunRecord:
    """Return a run that has everything a report can show."""
    record = fabricated_run(repetitions=6, frames=["64", "512", "1518", "imix"], link_bps=1e11)
    bad = fabricated_throughput(
        0, "linux-bridge", parse_frame_mix("64"), 1.0, status=MeasurementStatus.INVALID, reasons=("the generator sent too few",)
    )
    bound = fabricated_throughput(
        1, "linux-bridge", parse_frame_mix("512"), 4.4e5, status=MeasurementStatus.LOWER_BOUND, reasons=("the generator's ceiling",)
    )
    return record.model_copy(update={"measurements": (bad, bound, *record.measurements[2:])})


def test_a_report_opens_from_disk_and_draws_its_charts(browser: webdriver.Chrome, tmp_path: Path) -> None:
    record = rich_run()
    baseline = fabricated_run(seed=5, repetitions=6, frames=["64", "512", "1518", "imix"], labels={"version": "3.0"})
    open_report(browser, HtmlReporter().render(record, compare_runs(baseline, record)), tmp_path)
    drawn = browser.find_elements(By.CSS_SELECTOR, "figure.chart svg")
    assert len(drawn) == len(browser.find_elements(By.CSS_SELECTOR, "figure.chart")) >= 8
    assert all(chart.size["width"] > 300 and chart.size["height"] > 100 for chart in drawn)
    # Nothing of a chart lies outside of it, and no two labels of an axis overlap.
    assert browser.execute_script(_OUTSIDE) == []
    assert browser.get_log("browser") == []
    assert {"file"} <= requested(browser) <= {"file", "data", "blob"}
    text = browser.find_element(By.ID, "overview").text
    assert "the generator sent too few" in text
    assert "1 invalid" in text
    for section in ("comparison", "results", "latency", "curves", "series", "setup", "trust", "trials", "logs", "repeat"):
        assert browser.find_element(By.ID, section).is_displayed()
    assert browser.find_element(By.CSS_SELECTOR, "svg.topology").size["width"] > 300


def test_a_report_is_small(tmp_path: Path) -> None:
    one = fabricated_run(capacities_fps={"ovs": 1e6}, repetitions=1, frames=["64"], latency=False)
    assert len(HtmlReporter().render(one)) < 50_000
    assert len(HtmlReporter().render(rich_run())) < 500_000


def luminance(browser: webdriver.Chrome, expression: str) -> float:
    """Return how light a colour of the page is, from 0 to 1."""
    script = f"return {expression}.match(/[\\d.]+/g).slice(0, 3).map(Number)"
    return float(sum(browser.execute_script(script))) / 765


def test_the_theme_follows_the_system_and_the_button(browser: webdriver.Chrome, tmp_path: Path) -> None:
    page, chart = "getComputedStyle(document.body).backgroundColor", "getComputedStyle(document.querySelector('.xtick')).fill"
    open_report(browser, HtmlReporter().render(fabricated_run(repetitions=1, frames=["64"])), tmp_path)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    wait = WebDriverWait(browser, WAIT_S)
    wait.until(lambda _: luminance(browser, chart) > 0.7 and luminance(browser, page) < 0.2)
    browser.find_element(By.ID, "theme").click()
    assert browser.find_element(By.ID, "theme").text == "Theme: light"
    wait.until(lambda _: luminance(browser, chart) < 0.3 and luminance(browser, page) > 0.9)
    browser.find_element(By.ID, "theme").click()
    wait.until(lambda _: luminance(browser, chart) > 0.7 and luminance(browser, page) < 0.2)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert browser.get_log("browser") == []


def test_printing_opens_all_sections_but_trials_and_logs_in_the_light_theme(browser: webdriver.Chrome, tmp_path: Path) -> None:
    open_report(browser, HtmlReporter().render(fabricated_run(repetitions=1, frames=["64"])), tmp_path)
    browser.execute_script(
        """addEventListener("beforeprint", () => { window.atPrint = {
            closed: [...new Set([...document.querySelectorAll("details:not([open])")].map((d) => d.closest("section").id))],
            theme: document.documentElement.dataset.theme }; });"""
    )
    browser.find_element(By.ID, "theme").click()
    browser.find_element(By.ID, "theme").click()
    document = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert document.startswith(b"%PDF")
    assert browser.execute_script("return window.atPrint") == {"closed": ["trials", "logs"], "theme": "light"}
    assert browser.execute_script("return document.querySelectorAll('details[open]').length") == 0
    assert browser.find_element(By.TAG_NAME, "html").get_attribute("data-theme") == "dark"
    assert browser.get_log("browser") == []


def test_a_very_long_word_hides_nothing_and_logs_are_whole(browser: webdriver.Chrome, tmp_path: Path) -> None:
    word = "W" * 10_000
    mix = FrameMix(name=word, parts=((64, 1),))
    measurement = fabricated_throughput(0, word, mix, 1e6, reasons=(word,), status=MeasurementStatus.INCONCLUSIVE)
    record = fabricated_run(name=word, capacities_fps={}, labels={word: word}, logs=[LogExcerpt(source=word, text=word)])
    dut = DutRecord(label=word, driver=word, settings={word: word})
    record = record.model_copy(update={"measurements": (measurement,), "duts": (dut,)})
    open_report(browser, HtmlReporter().render(record, compare_runs(record, record)), tmp_path)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.execute_script("return document.getElementById('overview').scrollHeight") < 5000
    assert len(str(browser.find_element(By.CSS_SELECTOR, "#logs pre").get_attribute("textContent"))) == len(word)


def test_hostile_names_and_logs_stay_text(browser: webdriver.Chrome, tmp_path: Path) -> None:
    attack = f"{HOSTILE}<img src=x onerror=window.attacked=1><a href='javascript:window.attacked=1'>x</a>"
    frame = parse_frame_mix("64")
    measurement = fabricated_throughput(0, attack, frame, 1e6, reasons=(attack,), status=MeasurementStatus.INCONCLUSIVE)
    curve = measurement.outcome.curves[0].model_copy(update={"name": attack, "x_name": attack, "y_unit": attack})
    outcome = measurement.outcome.model_copy(update={"curves": (curve,)})
    record = fabricated_run(
        name=attack,
        capacities_fps={},
        labels={attack: attack},
        facts={attack: {attack: attack}},
        logs=[LogExcerpt(source=attack, text=attack)],
    ).model_copy(
        update={
            "command": ("ringroad-lab", attack),
            "scenario": {"physical": attack, attack: attack, "topology": attack},
            "duts": (DutRecord(label=attack, driver=attack, settings={attack: attack}, versions={attack: attack}, ports={attack: attack}),),
            "measurements": (measurement.model_copy(update={"outcome": outcome, "method": attack, "topology": attack}),),
            "deviations": (attack,),
        }
    )
    open_report(browser, HtmlReporter().render(record, compare_runs(record, record)), tmp_path)
    assert browser.execute_script("return window.attacked") is None
    assert browser.find_elements(By.CSS_SELECTOR, "main img, main a[href^='javascript'], svg a") == []
    assert browser.find_element(By.TAG_NAME, "h1").text == attack
    assert browser.get_log("browser") == []


class _Balance(HTMLParser):
    """Finds elements that are not closed, and wrong end tags."""

    void = frozenset({"meta", "link", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Push an element."""
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Pop the element."""
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.mark.parametrize(
    "record", [fabricated_run(), fabricated_run(capacities_fps={}, logs=()), rich_run()], ids=["plain", "empty", "rich"]
)
def test_every_element_is_closed(record: RunRecord) -> None:
    parser = _Balance()
    parser.feed(HtmlReporter().render(record))
    assert (parser.open, parser.wrong) == ([], [])


@pytest.mark.parametrize(("topology", "ports", "guests"), [("P2P", 2, 0), ("PVP", 4, 1), ("PVVP", 6, 2)])
def test_the_picture_shows_the_ports_and_guests_of_the_topology(topology: str, ports: int, guests: int) -> None:
    picture = topology_picture(topology, "<dut>", "veth", "testpmd", "memif")
    assert picture.count('class="port"') == ports
    assert picture.count('class="guest"') == guests
    assert "&lt;dut&gt;" in picture
    assert "<dut>" not in picture
