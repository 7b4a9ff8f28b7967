"""The page in a browser: it filters, sorts, opens rows, and is legible, in a desktop's and in a phone's window."""

import pytest

from browser import browser_missing, chromium
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import page_data
from kernelmark.bench.report.page import write_report
from support.pages import ROOT, Page
from support.rows import DISTURBED, begin, ceilings, fail, many, put, varied
from support.tools import needed

EVIL = "<img src=x onerror=\"document.title='broken'\"></script>"
TITLE = "The founding question: C = A x B^T, A 1024x26752, B 2048x26752, and the transposition it turns on"
KERNELS = ("numpy.matmul", "scipy.sgemm", "scipy.sgemm_colmajor", "numpy.tnn", "openblas.tnn", "openblas.inplace")

#: Words of text nodes that lie on more than one line.
BROKEN = r"""
const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (node.parentElement.closest("script, style, noscript, select")) continue;
  for (const match of node.data.matchAll(/[\p{L}\p{N}_]+(?:[.,]\p{N}+)*/gu)) {
    const range = document.createRange();
    range.setStart(node, match.index);
    range.setEnd(node, match.index + match[0].length);
    const tops = [...range.getClientRects()].map((box) => Math.round(box.top));
    if (tops.length && Math.max(...tops) - Math.min(...tops) > 2) found.push(match[0]);
  }
}
return found;
"""
#: Each text with its contrast (WCAG 2.1), where that is below 4.5; and how many texts there are.
FAINT = r"""
const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = (colour) => {
  pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data];
};
const luminance = (parts) => parts.slice(0, 3).map((part) => part / 255)
  .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
function paper(element) {
  for (let at = element; at; at = at.parentElement) {
    const found = rgba(getComputedStyle(at).backgroundColor);
    if (found[3] === 255) return found;
  }
  return rgba("Canvas");
}
const faint = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let count = 0;
while (walker.nextNode()) {
  const node = walker.currentNode, range = document.createRange();
  range.selectNodeContents(node);
  if (!node.data.trim() || !range.getClientRects().length) continue;
  count++;
  const style = getComputedStyle(node.parentElement);
  const ink = rgba(node.parentElement.closest("svg") ? style.fill : style.color);
  const [light, dark] = [luminance(ink), luminance(paper(node.parentElement))].sort((a, b) => b - a);
  const contrast = (light + 0.05) / (dark + 0.05);
  if (contrast < 4.5) faint.push(contrast.toFixed(2) + " " + node.data.trim());
}
return [faint, count];
"""


def founding(store):
    """A noisy run of the problems in the suite of the founding question, as on a machine with two cores."""
    begin(store, suites=(TITLE,))
    ceilings(store)
    dims = {"m": 1024, "n": 2048, "k": 26752}
    for layout, kernels in (("NT", KERNELS), ("NN", KERNELS[:3])):
        for i, name in enumerate(kernels):
            ratio = {"speedup": 1 / (1 + i), "speedup_ci95_low": 0.9 / (1 + i), "speedup_ci95_high": 1.1 / (1 + i)}
            values = {"baseline": "gemm/numpy.matmul", "disturbed": DISTURBED} | (ratio if i else {})
            put(store, f"gemm/m1024n2048k26752/f32/{layout}", f"gemm/{name}", 0.5 * (1 + 2 * i), dims, **values)
    moves = {"out": ("numpy.out", "openblas.omatcopy_threaded"), "in": ("openblas.imatcopy", "numba.t")}
    for place, names in moves.items():
        for i, name in enumerate(names):
            ratio = {"speedup": 1.01, "speedup_ci95_low": 0.9, "speedup_ci95_high": 1.1} if i else {}
            values = {"baseline": f"transpose/{names[0]}", **ratio}
            put(store, f"transpose/m2048n26752/f32/{place}", f"transpose/{name}", **values)
    fail(store, "copy/m2048n26752/f32", "copy/some.kernel", "unsupported")
    fail(store, "copy/m2048n26752/f32", "copy/some.other")


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium. Without one, the test is skipped; in CI it fails."""
    needed(browser_missing())
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports that are written once: `varied`, `evil`, `empty`, `founding`, and `many` rows with quantiles."""
    folder, addresses = tmp_path_factory.mktemp("pages"), {}
    fills = {"varied": varied, "evil": evil, "empty": begin, "founding": founding}
    for name, fill in (fills | {"many": lambda store: many(store, 120)}).items():
        store = Store(folder / f"{name}.db")
        fill(store)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(page_data, "MOST_ROWS", 100)
            addresses[name] = write_report(store, "r1", folder / name, pdf=False).as_uri()
        store.close()
    return addresses


def evil(store):
    begin(store)
    fail(store, f"gemm/m1n1k1{EVIL}/f32/NN", f"gemm/some.{EVIL}", reason=EVIL, versions=EVIL, layout=EVIL)
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base", tunables=EVIL)


@pytest.fixture
def opened(browser, pages):
    """Return a function that opens a page, folded or not; at the end, check that the console is empty."""
    browser.get_log("browser")

    def of(name, width=1300, scheme="light", fold=False):
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.get(pages[name])
        page = Page(browser)
        if not fold:
            page.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        return page

    yield of
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert browser.get_log("browser") == []


@pytest.mark.parametrize(
    ("name", "value", "rows"),
    [
        ("op", "conv", 6),
        ("problem", "m16n16", 6),
        ("problem", "conv r3", 2),
        ("kernel", "FFT", 3),
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


def test_filters_add_up_and_are_cleared_and_a_failure_opens_to_its_reason(opened):
    page = opened("varied")
    page.choose("op", "gemm")
    page.choose("threads", "1")
    page.choose("problem", "NT")
    assert page.count == "3 of 25 rows"
    page.find("#clear").click()
    assert page.count == "25 of 25 rows"
    page.choose("status", "wrong")
    page.find(".open").click()
    assert "wrong: c[0] is NaN" in page.find(".detail").text
    assert page.all(".detail svg") == []


def test_a_heading_sorts_both_ways_by_value_with_unknowns_last(opened):
    page = opened("varied")
    times = "return [...document.querySelectorAll('#table tbody tr')].map(r => r.cells[2].innerText)"

    def seconds():
        units = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
        return [float(text.split()[0]) * units[text.split()[1]] if text else None for text in page.run(times)]

    page.sort("time")
    times_s = seconds()
    assert times_s[-1] is None
    assert times_s[:-1] == sorted(times_s[:-1])
    assert page.find("th[data-name=time_s_median]").get_attribute("aria-sort") == "ascending"
    page.sort("time")
    assert seconds() == [*reversed(times_s[:-1]), None]
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


def test_pages_of_rows_are_turned_and_above_the_limit_rows_show_quantiles(opened):
    page = opened("many")
    first = page.column(0)
    assert (len(first), page.find("#where").text) == (50, "page 1 of 3")
    assert not page.find("#previous").is_enabled()
    for _ in range(2):
        page.find("#next").click()
    assert (len(page.column(0)), page.find("#where").text) == (20, "page 3 of 3")
    assert not page.find("#next").is_enabled()
    page.find(".open").click()
    assert page.find(".detail svg").get_attribute("aria-label").startswith("quantiles of 40 samples")
    assert page.all(".detail circle") == []
    assert page.all(".detail path.curve")


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


@pytest.mark.parametrize("name", ["varied", "evil", "empty", "many", "founding"])
@pytest.mark.parametrize("width", [375, 1300])
def test_the_page_never_scrolls_sideways_and_on_a_phone_problem_kernel_time_and_status_remain(opened, name, width):
    page = opened(name, width)
    for button in page.all(".open")[:2]:
        button.click()
    assert page.run("return document.documentElement.scrollWidth") <= width
    heads = page.run("return [...document.querySelectorAll('#table th')].filter(c => c.offsetParent)")
    if width == 375:
        assert [head.text for head in heads] == ["problem", "kernel", "time", "status"]


def test_text_from_rows_stays_text_and_an_empty_run_says_so(opened):
    page = opened("empty")
    assert page.count == "0 of 0 rows"
    assert "This run has no rows." in page.find("main").text
    page = opened("evil")
    for button in page.all(".open"):
        button.click()
    assert page.all("main img[src=x], #table img") == []
    assert page.browser.title.startswith("kernelmark")
    assert EVIL in page.run("return document.querySelector('.detail').textContent")
    assert EVIL in page.run("return document.getElementById('table').textContent")


@pytest.mark.parametrize(("width", "height"), [(1300, 1000), (375, 2 * 812)])
def test_verdict_three_numbers_and_first_figure_stand_on_the_first_screens(opened, width, height):
    page = opened("founding", width, fold=True)
    shown = ".noise, .verdict, .numbers > div, section > figure.dots:first-of-type"
    ends = page.run(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect().bottom)", shown
    )
    assert len(ends) == 6
    assert max(ends) <= height


def test_rows_refusals_method_claims_and_environment_are_folded_and_a_link_unfolds_them(opened):
    page = opened("founding", fold=True)
    heads = page.run("return [...document.querySelectorAll('main > details h2')].map(e => e.innerText)")
    assert heads == ["Findings", "Rows", "Rows without a result", "More figures", "Method", "Environment"]
    assert page.all("details[open]") == []
    page.find("a[href='#refusals']").click()
    assert page.find(".refusals .bad").is_displayed()


@pytest.mark.parametrize("width", [375, 1300])
def test_no_word_is_broken_and_a_number_of_the_verdict_stays_with_its_per_cent(opened, width):
    page = opened("founding", width)
    page.find(".open").click()
    assert page.run(BROKEN) == []
    verdict = page.run("return document.querySelector('.verdict').textContent")
    assert "\N{NO-BREAK SPACE}%" in verdict
    assert " %" not in verdict


@pytest.mark.parametrize("name", ["varied", "founding"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_legible_in_both_colour_schemes(opened, name, scheme):
    page = opened(name, scheme=scheme)
    page.find(".open").click()
    faint, count = page.run(FAINT)
    assert count > 200
    assert faint == []


def test_figures_follow_the_colour_scheme(opened):
    drawn = """
    const image = document.querySelector('.drawing img'), canvas = document.createElement('canvas');
    image.loading = 'eager';
    await image.decode();
    const [width, height] = [canvas.width, canvas.height] = [300, 300], pen = canvas.getContext('2d');
    pen.drawImage(image, 0, 0, width, height);
    const data = pen.getImageData(0, 0, width, height).data;
    let ink = 0, sum = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) { ink++; sum += data[i + 1]; }
    return sum / ink;
    """
    light, dark = (
        opened("founding", scheme=scheme).run(f"return (async () => {{{drawn}}})()") for scheme in ("light", "dark")
    )
    assert light < 100 < 150 < dark


def test_winners_are_outlined_in_the_heat_map(opened):
    page = opened("founding")
    styles = page.run("return [...document.querySelectorAll('.heat td')].map(e => getComputedStyle(e).outlineStyle)")
    assert styles.count("solid") == 2
    assert page.find(".heat td.wins").text.startswith("~")


#: Returns the parts of a page of the docs that are wider than the window, and whether letters are lighter than paper.
WIDE = r"""
const room = document.documentElement.clientWidth;
const wide = [...document.querySelectorAll("table, img, pre, h1, p")]
  .map((found) => [found.tagName, found.getBoundingClientRect()])
  .filter(([, box]) => box.left < 0 || box.right > room).map(([name]) => name);
const light = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
const body = getComputedStyle(document.body);
return [document.documentElement.scrollWidth - room, wide, light(body.color) > light(body.backgroundColor)];
"""


@pytest.mark.long
def test_no_page_of_the_docs_is_wider_than_a_phone_or_a_desk(browser, tmp_path, python_in):
    needed(module_missing("mkdocs"))
    python_in(ROOT, "-m", "mkdocs", "build", "-q", "--site-dir", str(tmp_path))
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    overflows = {}
    for page in tmp_path.glob("**/index.html"):
        browser.get(page.as_uri())
        for width in (375, 1300):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            overflows[page.parent.name, width] = browser.execute_script(WIDE)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(overflows) > 60
    assert {page: each for page, each in overflows.items() if each != [0, [], True]} == {}
