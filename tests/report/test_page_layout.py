"""The page as it is laid out in a browser: what stands on the first screen, whole words, and legible text."""

import pytest

from kernelmark.bench.record.store import Store
from kernelmark.bench.report.page import write_report
from support.pages import Page
from support.rows import begin, ceilings, fail, put

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

DISTURBED = "others took 0.98 CPUs during 100 % of the sampling"
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
    """A noisy run of the founding problems, as the suite has them on two cores."""
    begin(store, suites=(TITLE,))
    ceilings(store)
    dims = {"m": 1024, "n": 2048, "k": 26752}
    for layout, kernels in (("NT", KERNELS), ("NN", KERNELS[:3])):
        for i, name in enumerate(kernels):
            ratio = {"speedup": 1 / (1 + i), "speedup_ci95_low": 0.9 / (1 + i), "speedup_ci95_high": 1.1 / (1 + i)}
            values = {"baseline": "gemm/numpy.matmul", "disturbed": DISTURBED} | (ratio if i else {})
            put(store, f"gemm/m1024n2048k26752/f32/{layout}", f"gemm/{name}", 0.5 * (1 + 2 * i), dims, **values)
    for place, names in (
        ("out", ("numpy.out", "openblas.omatcopy_threaded")),
        ("in", ("openblas.imatcopy", "numba.t")),
    ):
        for i, name in enumerate(names):
            ratio = {"speedup": 1.01, "speedup_ci95_low": 0.9, "speedup_ci95_high": 1.1} if i else {}
            put(
                store,
                f"transpose/m2048n26752/f32/{place}",
                f"transpose/{name}",
                baseline=f"transpose/{names[0]}",
                **ratio,
            )
    fail(store, "copy/m2048n26752/f32", "copy/some.kernel", "unsupported")
    fail(store, "copy/m2048n26752/f32", "copy/some.other")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    store = Store(folder / "results.db")
    founding(store)
    yield write_report(store, "r1", folder / "out").as_uri()
    store.close()


@pytest.fixture
def opened(browser, address):
    def at(width, height=1000, scheme="light", unfold=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.get(address)
        page = Page(browser)
        if unfold:
            page.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
            page.find(".open").click()
        return page

    yield at
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize(("width", "height"), [(1300, 1000), (375, 2 * 812)])
def test_verdict_three_numbers_and_first_figure_stand_on_the_first_screens(opened, width, height):
    page = opened(width)
    shown = ".noise, .verdict, .numbers > div, section > figure.dots:first-of-type"
    ends = page.run(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect().bottom)", shown
    )
    assert len(ends) == 6
    assert max(ends) <= height


def test_rows_refusals_method_claims_and_environment_are_folded(opened):
    page = opened(1300)
    heads = page.run("return [...document.querySelectorAll('main > details h2')].map(e => e.innerText)")
    assert heads == ["Findings", "Rows", "Rows without a result", "More figures", "Method", "Environment"]
    assert page.all("details[open]") == []


def test_a_link_to_what_is_folded_unfolds_it(opened):
    page = opened(1300)
    page.find("a[href='#refusals']").click()
    assert page.find(".refusals .bad").is_displayed()


@pytest.mark.parametrize("width", [375, 1300])
def test_no_word_is_broken(opened, width):
    assert opened(width, unfold=True).run(BROKEN) == []


def test_a_number_of_the_verdict_stays_with_its_per_cent(opened):
    verdict = opened(1300).run("return document.querySelector('.verdict').textContent")
    assert "\N{NO-BREAK SPACE}%" in verdict
    assert " %" not in verdict


@pytest.mark.parametrize("width", [375, 1300])
def test_nothing_leaves_the_page_sideways(opened, width):
    assert opened(width, unfold=True).run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_legible_in_both_colour_schemes(opened, scheme):
    faint, count = opened(1300, scheme=scheme, unfold=True).run(FAINT)
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
        opened(1300, scheme=scheme).run(f"return (async () => {{{drawn}}})()") for scheme in ("light", "dark")
    )
    assert light < 100 < 150 < dark


def test_winners_are_outlined_in_the_heat_map(opened):
    page = opened(1300)
    styles = page.run("return [...document.querySelectorAll('.heat td')].map(e => getComputedStyle(e).outlineStyle)")
    assert styles.count("solid") == 2
    assert page.find(".heat td.wins").text.startswith("~")
