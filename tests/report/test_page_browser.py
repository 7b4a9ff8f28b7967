"""The page in a browser: it filters, sorts, opens rows, by mouse and by keyboard, on a desk and on a phone."""

import pytest

from kernelmark.bench.record.store import Store
from kernelmark.bench.report import page_data
from kernelmark.bench.report.page import write_report
from support.pages import Page, contrast
from support.rows import begin, fail, many, put, varied

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

EVIL = "<img src=x onerror=\"document.title='broken'\"></script>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports that are written once: `varied`, `evil`, `empty`, and `many` rows with quantiles."""
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, fill in (("varied", varied), ("evil", evil), ("empty", begin), ("many", lambda store: many(store, 120))):
        store = Store(folder / f"{name}.db")
        fill(store)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(page_data, "MOST_ROWS", 100)
            found[name] = write_report(store, "r1", folder / name).as_uri()
        store.close()
    return found


def evil(store):
    begin(store)
    fail(store, f"gemm/m1n1k1{EVIL}/f32/NN", f"gemm/some.{EVIL}", reason=EVIL, versions=EVIL, layout=EVIL)
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base", tunables=EVIL)


@pytest.fixture
def opened(browser, pages):
    """Opens a page in a window of this width, and finds nothing in the console at the end."""
    browser.get_log("browser")

    def of(name, width=1280):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(pages[name])
        page = Page(browser)
        page.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        return page

    yield of
    assert browser.get_log("browser") == []


def test_all_rows_are_there(opened):
    page = opened("varied")
    assert page.count == "25 of 25 rows"
    assert len(page.column(0)) == 25


@pytest.mark.parametrize(
    ("name", "value", "rows"),
    [
        ("op", "conv", 6),
        ("problem", "m16n16", 6),
        ("problem", "conv r3", 2),
        ("kernel", "FFT", 3),
        ("device", "cpu", 25),
        ("mode", "cold", 25),
        ("status", "wrong", 1),
        ("threads", "1", 6),
        ("kernel", "nothing like it", 0),
    ],
)
def test_a_filter_leaves_what_fits(opened, name, value, rows):
    page = opened("varied")
    page.choose(name, value)
    assert page.count == f"{rows} of 25 rows"
    assert len(page.column(0)) == rows


def test_filters_add_up_and_are_cleared(opened):
    page = opened("varied")
    page.choose("op", "gemm")
    page.choose("threads", "1")
    page.choose("problem", "NT")
    assert page.count == "3 of 25 rows"
    page.find("#clear").click()
    assert page.count == "25 of 25 rows"


def test_a_heading_sorts_both_ways_by_value_with_unknowns_last(opened):
    page = opened("varied")
    times = "return [...document.querySelectorAll('#table tbody tr')].map(r => r.cells[2].innerText)"

    def seconds():
        units = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
        return [float(text.split()[0]) * units[text.split()[1]] if text else None for text in page.run(times)]

    page.sort("time")
    found = seconds()
    assert found[-1] is None
    assert found[:-1] == sorted(found[:-1])
    assert page.find("th[data-name=time_s_median]").get_attribute("aria-sort") == "ascending"
    page.sort("time")
    assert seconds() == [*reversed(found[:-1]), None]
    page.sort("kernel")
    assert page.column(1) == sorted(page.column(1))
    assert page.find("th[data-name=time_s_median]").get_attribute("aria-sort") == "none"


def test_a_row_opens_to_samples_provenance_and_command_and_closes(opened):
    page = opened("varied")
    page.choose("kernel", "other.fast")
    page.choose("threads", "1")
    page.find(".open").click()
    assert len(page.all(".detail circle")) == 40
    facts = page.find(".detail dl").text
    for words in ("numpy 2.4.6", "c0ffee1234567", "Some CPU", "0.25", "2026-01-01T10:00", "within-process"):
        assert words in facts
    assert page.find(".detail code").text == (
        "kernelmark run gemm/m16n16k16/f32/NN --kernels gemm/other.fast --kernels gemm/some.base --mode cold "
        "--threads 1 --seed 3 --max-time 0.5"
    )
    page.find(".open").click()
    assert page.all(".detail") == []


def test_a_failure_opens_to_its_reason(opened):
    page = opened("varied")
    page.choose("status", "wrong")
    page.find(".open").click()
    assert "wrong: c[0] is NaN" in page.find(".detail").text
    assert page.all(".detail svg") == []


def test_above_the_limit_rows_show_quantiles(opened):
    page = opened("many")
    page.find(".open").click()
    assert page.find(".detail svg").get_attribute("aria-label").startswith("quantiles of 40 samples")
    assert page.all(".detail circle") == []
    assert page.all(".detail path.curve")


def test_pages_of_rows_are_turned(opened):
    page = opened("many")
    first = page.column(0)
    assert (len(first), page.find("#where").text) == (50, "page 1 of 3")
    assert not page.find("#previous").is_enabled()
    for _ in range(2):
        page.find("#next").click()
    assert (len(page.column(0)), page.find("#where").text) == (20, "page 3 of 3")
    assert not page.find("#next").is_enabled()


def test_everything_can_be_done_by_keyboard(opened):
    page = opened("varied")
    page.find("body").send_keys("\ue004")
    assert "Skip to the rows" in page.focused
    page.find("#filter-kernel").send_keys("fft")
    assert page.count == "3 of 25 rows"
    seen = []
    for _ in range(40):
        page.press("\ue004")
        seen.append(page.focused)
        if seen[-1].startswith('<button type="button" class="open"'):
            break
    assert any('id="clear"' in each for each in seen)
    assert any(">time</button>" in each for each in seen)
    page.press("\ue007")
    assert page.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    assert page.all(".detail")
    outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("name", ["varied", "evil", "empty", "many"])
@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_never_scrolls_sideways(opened, name, width):
    page = opened(name, width)
    for button in page.all(".open")[:2]:
        button.click()
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_on_a_phone_problem_kernel_time_and_status_remain(opened):
    page = opened("varied", 375)
    shown = page.run(
        "return [...document.querySelectorAll('#table th')].filter(c => c.offsetParent).map(c => c.innerText)"
    )
    assert shown == ["problem", "kernel", "time", "status"]


def test_text_from_rows_stays_text(opened):
    page = opened("evil")
    for button in page.all(".open"):
        button.click()
    assert page.all("main img[src=x], #table img") == []
    assert page.browser.title.startswith("kernelmark")
    assert EVIL in page.run("return document.querySelector('.detail').textContent")
    assert EVIL in page.run("return document.getElementById('table').textContent")


def test_an_empty_run_has_a_page_that_says_so(opened):
    page = opened("empty")
    assert page.count == "0 of 0 rows"
    assert "This run has no rows." in page.find("main").text


def test_colours_follow_the_readers_scheme_and_are_legible(browser, opened):
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        page = opened("varied")
        for selector in ("body", "a", ".subject, .run", ".bad"):
            ink = page.run("return getComputedStyle(document.querySelector(arguments[0])).color", selector)
            paper = page.run("return getComputedStyle(document.body).backgroundColor")
            assert contrast(ink, paper) >= 4.5, (scheme, selector)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
