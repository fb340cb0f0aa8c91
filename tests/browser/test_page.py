"""The page of a run in a browser: what a reader sees, clicks and types."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from adjudge import ByHand, Case, Verdict, run
from adjudge.suites import RunReport, page
from adjudge.suites.results import Place

pytest.importorskip("selenium", reason="pip install selenium")
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

HOSTILE = [
    "<script>document.title='broken'</script>",
    "</script><img src=x onerror=\"document.title='broken'\">",
    "<!--<script>",
    "<svg onload=document.title='broken'>",
    '" autofocus onfocus="document.title=\'broken\'" x="',
    "</title></style></textarea>",
    "\u202etxt.exe\u2066 \x00\x07\x1b[31m \ud800",
]


def rule(factor):
    return ByHand(np.sin, vjp=lambda x, w: factor * w * np.cos(x))


def of_two_inputs():
    """A function of two inputs, of which the gradient of the second is off."""
    return ByHand(lambda x, y: (x * y, x), vjp=lambda x, y, w: (w[0] * y + w[1], 1.5 * w[0] * x))


def refuse(x):
    raise LookupError("no such table")


@pytest.fixture(scope="session")
def report():
    x = np.linspace(0.1, 1.2, 6)
    cases = {
        "right 10": Case(rule(1), x),
        "right 9": Case(rule(1), 2 * x),
        "twice": Case(rule(2), x),
        "off by 1 %": Case(rule(1.01), x),
        "refuses": Case(ByHand(refuse, vjp=refuse), x),
        "jump": Case(ByHand(np.floor, vjp=lambda x, w: 0 * w), 0 * x),
    }
    found = run(cases, seed=3)
    placed = [replace(one, place=Place("checks/a.py", one.name)) for one in found.results]
    return RunReport(placed, found.seed, found.seconds, ["later"])


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens the page of a run, and fails where the browser complains."""

    def call(report, **more):
        path = tmp_path / "run.html"
        path.write_text(page(report, **more), encoding="utf-8")
        chromium.get(path.as_uri())
        return chromium

    yield call
    assert chromium.get_log("browser") == []


def names(browser):
    """The names of the cases that are seen, in their order."""
    rows = browser.find_elements(By.CSS_SELECTOR, "tbody > tr[data-kind]")
    return [row.find_element(By.TAG_NAME, "bdi").text for row in rows if row.is_displayed()]


def find(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def header(browser, name):
    return browser.find_element(By.XPATH, f"//thead//button[text()='{name}']")


def case(browser, name):
    return browser.find_element(By.XPATH, f"//tbody//button[bdi='{name}']")


def test_the_summary_and_the_rows(opened, report):
    browser = opened(report)

    assert browser.title == "4 of 6 cases did not pass – adjudge"
    assert names(browser) == ["twice", "off by 1 %", "refuses", "jump", "right 10", "right 9"]
    shown = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "[data-show]")]
    assert shown == ["all 6", "FAIL 2", "raised 1", "INCONCLUSIVE 1", "PASS 2"]
    assert "1 case not begun" in find(browser, ".skipped summary").text
    assert find(browser, "#search").accessible_name == "Search names and messages"


def test_columns_sort_both_ways_and_what_has_no_number_is_last(opened, report):
    browser = opened(report)
    header(browser, "Case").click()
    assert names(browser) == ["jump", "off by 1 %", "refuses", "right 9", "right 10", "twice"]
    header(browser, "Case").click()
    assert names(browser) == ["twice", "right 10", "right 9", "refuses", "off by 1 %", "jump"]

    header(browser, "Automatic").click()
    descending = names(browser)
    assert find(browser, "thead [aria-sort]").text.startswith("Automatic")
    assert find(browser, "thead [aria-sort]").get_attribute("aria-sort") == "descending"
    header(browser, "Automatic").click()
    assert find(browser, "thead [aria-sort]").get_attribute("aria-sort") == "ascending"
    numbered = len(
        [one for one in report.results if one.report and one.verdict is not Verdict.PASS]
    )
    assert names(browser)[:numbered] == descending[:numbered][::-1]
    assert {*names(browser)[numbered:]} == {"refuses", "right 10", "right 9"}

    header(browser, "Rel. error").click()
    assert names(browser)[-1] == "refuses"
    assert names(browser).index("twice") < names(browser).index("off by 1 %")


def test_kinds_and_the_search_filter_together(opened, report):
    browser = opened(report)
    find(browser, "[data-show=FAIL]").click()
    find(browser, "[data-show=PASS]").click()
    assert names(browser) == ["twice", "off by 1 %", "right 10", "right 9"]
    assert find(browser, "[data-show=PASS]").get_attribute("aria-pressed") == "true"
    assert find(browser, "[data-show='']").get_attribute("aria-pressed") == "false"
    assert find(browser, "#shown").text == "4 of 6 cases are shown"

    find(browser, "#search").send_keys("RIGHT")
    assert names(browser) == ["right 10", "right 9"]
    find(browser, "#search").send_keys("nowhere")
    assert names(browser) == []
    assert find(browser, "#none").is_displayed()

    find(browser, "#search").clear()
    find(browser, "[data-show='']").click()
    assert len(names(browser)) == 6
    assert find(browser, "#shown").text == ""
    find(browser, "#search").send_keys("no such table")
    assert names(browser) == ["refuses"]


def test_a_case_opens_to_what_is_known_of_it(opened, report):
    browser = opened(report)
    for name in ("twice", "refuses", "right 9"):
        case(browser, name).click()

    twice, refuses, right = browser.find_elements(By.CSS_SELECTOR, "tr.detail")
    for finding in report["twice"].report["findings"]:
        assert finding["text"] in twice.find_element(By.TAG_NAME, "pre").get_attribute(
            "textContent"
        )
    assert [cell.text for cell in twice.find_elements(By.TAG_NAME, "th")][:4] == [
        "Entry",
        "Mode",
        "Automatic",
        "Reference",
    ]
    assert f"seed\n{report['twice'].seed}" in twice.text
    assert "adjudge check checks/a.py:twice --seed 3" in twice.text
    assert "LookupError: no such table" in refuses.text
    assert "1 comparison agrees" in right.text
    assert "evaluations" not in right.text
    right.find_element(By.TAG_NAME, "summary").click()
    assert f"evaluations\n{report['right 9'].report['counts']['evaluations']}" in right.text

    header(browser, "Case").click()  # an open case stays with its row
    below = case(browser, "twice").find_element(By.XPATH, "./ancestor::tr/following-sibling::tr[1]")
    assert below.get_attribute("class") == "detail"
    find(browser, "[data-show=raised]").click()
    assert [one.is_displayed() for one in (twice, refuses, right)] == [False, True, False]
    case(browser, "refuses").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "tr.detail")) == 2


@pytest.fixture(scope="session")
def of_pairs():
    """A case of two inputs in full mode, the gradient of one of which is off."""
    x = np.linspace(0.3, 1.2, 4)
    found = run({"pairs": Case(of_two_inputs(), (x, 2 * x), mode="full")}, seed=3)
    return RunReport(found.results, found.seed, found.seconds)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pairs_and_the_pictures_show_what_is_wrong(opened, of_pairs, scheme):
    browser = opened(of_pairs)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    case(browser, "pairs").click()

    cells = [
        [cell.text for cell in row.find_elements(By.CSS_SELECTOR, "td, th")]
        for row in browser.find_elements(By.CSS_SELECTOR, "table.pairs tr")
    ]
    assert cells[0] == ["", "inputs[0]", "inputs[1]"]
    assert [row[0] for row in cells[1:]] == ["out[0]", "out[1]"]
    assert cells[1][2] == "WRONG 0.5"
    assert all(text.startswith("right") for text in (cells[1][1], cells[2][1], cells[2][2]))

    titles = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".detail h2")]
    assert {"Error against step", "Relative error by entry"} <= {*titles}
    steps, *maps, legend = browser.find_elements(By.CSS_SELECTOR, ".pictures svg")
    assert steps.accessible_name == "error against step"
    assert "off by" in steps.text
    assert len(maps) == 2  # the columns of the other input agreed together
    for picture in (steps, *maps, legend):
        assert picture.is_displayed()
        assert picture.size["width"] > 50
    worst = maps[0].find_elements(By.CSS_SELECTOR, ".heat")
    assert len(worst) == 1  # the diagonal, at which all entries are off alike
    red = [int(part) for part in worst[0].value_of_css_property("fill")[4:-1].split(",")]
    assert red[0] > 1.4 * max(red[1:])


def test_the_script_is_copied_and_repeats_the_check(opened, of_pairs):
    browser = opened(of_pairs)
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    case(browser, "pairs").click()
    find(browser, ".script summary").click()

    find(browser, ".script button").click()

    WebDriverWait(browser, 10).until(lambda _: find(browser, ".script button").text == "Copied")
    browser.execute_script(
        "document.body.append(Object.assign(document.createElement('textarea'), {id: 'into'}))"
    )
    find(browser, "#into").send_keys(Keys.CONTROL, "v")
    pasted = find(browser, "#into").get_attribute("value")
    assert pasted == of_pairs["pairs"].script.rstrip()
    assert "report = adjudge.examine(f, inputs, mode='full', seed=" in pasted


def test_the_command_is_copied(opened, report, chromium, tmp_path):
    browser = opened(report, file=tmp_path / "a run.json")
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    case(browser, "off by 1 %").click()

    find(browser, ".repeat button").click()

    WebDriverWait(browser, 10).until(lambda _: find(browser, ".repeat button").text == "Copied")
    find(browser, "#search").send_keys(Keys.CONTROL, "v")
    pasted = find(browser, "#search").get_attribute("value")
    assert pasted == f"adjudge replay '{tmp_path}/a run.json:off by 1 %'"


def test_everything_can_be_reached_and_used_by_the_keyboard(opened, report):
    browser = opened(report)
    reached = []
    for _ in range(5 + 1 + 8 + 6):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        focused = browser.switch_to.active_element
        reached.append(focused.accessible_name)
        outline = focused.value_of_css_property("outline-style")
        assert outline == "solid", reached[-1]
        if focused.accessible_name == "twice":
            ActionChains(browser).send_keys(Keys.ENTER).perform()
            assert focused.get_attribute("aria-expanded") == "true"
            assert browser.find_element(
                By.ID, focused.get_attribute("aria-controls")
            ).is_displayed()
            ActionChains(browser).send_keys(Keys.SPACE).perform()
            assert focused.get_attribute("aria-expanded") == "false"
    assert reached[:5] == ["all 6", "FAIL 2", "raised 1", "INCONCLUSIVE 1", "PASS 2"]
    assert reached[5] == "Search names and messages"
    assert reached[-6:] == ["twice", "off by 1 %", "refuses", "jump", "right 10", "right 9"]


def test_a_screen_reader_finds_a_table(opened, report):
    browser = opened(report)
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in tree if not node.get("ignored")]

    assert roles.count("table") == 1
    assert roles.count("columnheader") == 8
    assert roles.count("rowheader") == 6
    assert roles.count("row") == 7
    assert "status" in roles


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_the_ground(opened, report, scheme):
    browser = opened(report)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    case(browser, "twice").click()

    def luminance(color):
        parts = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def color(selector, which="color"):
        script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        return luminance(browser.execute_script(script, selector, which))

    grounds = [color("body", "background-color"), color(".detail pre", "background-color")]
    assert (grounds[0] < 0.1) == (scheme == "dark")
    for selector in ("h1", ".about", "td.FAIL", "td.INCONCLUSIVE", "td.PASS", ".detail h2", "th p"):
        for ground in grounds:
            light, dark = sorted((color(selector), ground), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, selector


def test_hostile_texts_are_read_as_texts(opened, report):
    wrong = report["twice"]
    results = []
    for text in HOSTILE:
        data = json.loads(json.dumps(wrong.report))
        data["findings"][0] |= {"text": text, "status": text}
        data["entries"][0] |= {"of": text, "wrt": text, "method": text}
        data["counts"] = {text: 1}
        named = {"output": text, "input": text, "mode": text, "way": text}
        pair = {"verdict": "FAIL", "relative": 1.0, "norm": 1.0, "compared": 1}
        pair |= {"errors": [[1.0, 0.0]], **named}
        data["pairs"] = [pair, pair | {"output": "other"}]
        place = Place(text, text)
        one = replace(wrong, name=text, report=data, headline=text, place=place, file=text)
        one = replace(one, script=text)
        results += [one, replace(one, name=text + " raised", report=None, details=text)]

    browser = opened(
        RunReport(results, 1, 0.0, HOSTILE), excused=dict.fromkeys(HOSTILE, HOSTILE[0])
    )
    for selector in ("tbody th button", "summary"):
        browser.execute_script(f"document.querySelectorAll('{selector}').forEach(x => x.click())")

    assert browser.title == "14 of 14 cases did not pass – adjudge"
    assert len(names(browser)) == 14
    assert len(browser.find_elements(By.CSS_SELECTOR, "tr.detail")) == 14
    assert not browser.find_elements(By.CSS_SELECTOR, "img, textarea, tr script, [onload]")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".detail svg")) == 7 * 4
    assert {*HOSTILE[:-1]} <= {*names(browser)}
    for hidden in "\u202e\u2066\x1b":
        assert hidden not in find(browser, "body").text


def test_five_thousand_cases_open_and_answer(opened, report, tmp_path):
    judged = [one for one in report.results if one.report is not None]
    results = [
        replace(judged[k % len(judged)], name=f"case {k}", seed=k, seconds=k / 7)
        for k in range(5000)
    ]
    start = time.perf_counter()

    browser = opened(RunReport(results, 1, 0.0), file=tmp_path / "run.json")

    assert time.perf_counter() - start < 20  # about 2 s where nothing else runs
    assert (tmp_path / "run.html").stat().st_size < 10_000_000
    timed = """
        const done = arguments[1], start = performance.now();
        document.querySelectorAll(arguments[0])[1].click();
        document.body.offsetHeight;
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
    """
    assert browser.execute_async_script(timed, "thead button") < 10_000
    first = browser.execute_script("return document.querySelector('tbody bdi').textContent")
    assert first == "case 0"
    assert browser.execute_async_script(timed, "[data-show]") < 5_000
    find(browser, "#search").send_keys("case 4997")
    assert find(browser, "#shown").text == "1 of 5000 cases are shown"


def test_on_paper_what_did_not_pass_is_open_and_the_controls_are_gone(opened, report):
    browser = opened(report)
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})

    assert len(browser.find_elements(By.CSS_SELECTOR, "tr.detail")) == 4
    assert not find(browser, ".tools").is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_passing_runs_say_so(opened, report):
    passing = [one for one in report.results if one.verdict is Verdict.PASS]

    browser = opened(RunReport(passing, 1, 0.0))

    assert find(browser, "h1").text == "All 2 cases passed"
