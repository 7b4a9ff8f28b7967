"""The report of a run: what stands on the page and in the folder, without a browser."""

import base64
import hashlib
import json
import re

import pytest

from kernelmark.bench.plan.status import Status
from kernelmark.bench.report import findings, founding
from kernelmark.bench.report.page import script_json, write_report
from kernelmark.bench.report.page_data import page_columns, page_data
from kernelmark.bench.report.run_data import RunData
from support.rows import begin, fail, put, varied

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


def report(store, folder, **options):
    """Return the page, without the places where lines may break."""
    return write_report(store, "r1", folder, **options).read_text(encoding="utf-8").replace("<wbr>", "")


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_is_the_same_bytes_for_the_same_data(begun, tmp_path):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    for name in ("one", "other"):
        report(begun, tmp_path / name)
    assert files(tmp_path / "one") == files(tmp_path / "other")


def test_a_report_has_page_figures_tables_method_and_environment(begun, tmp_path):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    report(begun, tmp_path / "out")
    assert set(files(tmp_path / "out")) == {
        "index.html",
        "method.txt",
        "environment.json",
        "figures/captions.json",
        "figures/samples-gemm-cpu-t2-cold-fp32.svg",
        "figures/samples-gemm-cpu-t2-cold-fp32.pdf",
        "tables/results.csv",
        "tables/results.md",
        "tables/results.tex",
        "tables/results-gemm.tex",
    }
    environment = json.loads((tmp_path / "out" / "environment.json").read_text())
    assert environment["machine"]["cpu"] == "Some CPU"
    assert environment["run_id"] == "r1"


def test_the_page_loads_nothing_from_elsewhere(begun, tmp_path):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    page = report(begun, tmp_path)
    assert not re.search(r'(?:src|srcset|action)="(?!data:)', page)
    assert not re.search(r"<link(?![^>]*href=\"data:)", page)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    assert "default-src 'none'" in page


def test_the_page_runs_its_own_script_and_no_other(begun, tmp_path):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    page = write_report(begun, "r1", tmp_path).read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert not re.search(r"<[^>]* on\w+=|javascript:", page)


def test_figures_of_an_earlier_report_go_and_foreign_files_stay(begun, tmp_path):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    report(begun, tmp_path)
    (tmp_path / "figures" / "mine.pdf").write_text("mine")
    begin(begun, "r2")
    write_report(begun, "r2", tmp_path)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"mine.pdf", "captions.json"}


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.OK}))
def test_a_run_of_failures_alone_says_so_and_why(begun, tmp_path, status):
    fail(begun, "gemm/m8n8k8/f32/NN", "gemm/some.bad", status)
    page = report(begun, tmp_path)
    assert f"1 row: 1 {status}. None has a time" in page
    assert f"1 {status}: gemm/some.bad: c[0] is NaN" in page
    assert "There is no figure" in page


def test_an_empty_run_says_so(begun, tmp_path):
    page = report(begun, tmp_path)
    assert "This run has no rows." in page
    assert "There is no figure" in page
    assert "<figure>" not in page


def test_what_was_not_drawn_is_named_with_its_reason(begun, tmp_path):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    assert "<li>Roofline: no row with operations has a ceiling" in report(begun, tmp_path)


def test_text_from_rows_cannot_become_markup(begun, tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    fail(begun, "gemm/m8n8k8/f32/NN", f"gemm/some.{evil}", reason=evil)
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.<b>&amp;")
    page = report(begun, tmp_path)
    assert evil not in page
    assert "<b>" not in page
    assert page.count("</script>") == 2


def test_json_in_a_script_reads_back_as_it_was():
    found = {"a": "</script><!-- & '"}
    text = script_json(found)
    assert json.loads(text) == found
    assert not set("<&") & set(text)


def test_rows_from_elsewhere_with_little_known_of_them_are_reported(store, tmp_path):
    begin(store, machine={}, environment={}, plan={}, git_commit="", suites=("elsewhere.json",))
    nothing = dict.fromkeys(("gflop_per_s", "gbyte_per_s", "time_s_ci95_low", "time_s_ci95_high", "time_s_min"))
    nothing |= {"dtype": "", "numerics": "", "provider": "", "device_name": "", "versions": "", "started_at": ""}
    for name in ("test_a[1-2]", "test_b"):
        put(store, f"elsewhere/{name}/", "elsewhere/some", **nothing)
    put(store, "gemm//", "gemm/some", **{**nothing, "speedup": 0.0, "time_s_median": 0.0})
    assert "3 rows: 3 ok." in report(store, tmp_path)


def test_a_run_without_transposed_products_has_no_such_question(begun, tmp_path):
    put(begun, "copy/m8n8/f32", "copy/some.base")
    assert founding.QUESTION not in report(begun, tmp_path)


def test_a_report_without_claims_has_no_such_section(begun, tmp_path):
    assert "founding claims" not in report(begun, tmp_path)


def test_a_missing_package_is_named_with_its_remedy(begun, tmp_path, monkeypatch, complaint):
    from kernelmark.bench.report import page

    monkeypatch.setattr(page, "find_spec", lambda name: None)
    assert complaint(lambda: write_report(begun, "r1", tmp_path)).endswith("pip install 'kernelmark[report]'")


def test_nothing_heavy_is_loaded_before_a_figure_is_drawn(python_in, tmp_path):
    modules = "sys, kernelmark.bench.cli.report, kernelmark.bench.report.page"
    code = f"import {modules}; print({{'matplotlib', 'jinja2'}} & set(sys.modules))"
    assert python_in(tmp_path, "-c", code).stdout.strip() == "set()"


def test_the_head_names_the_suite_the_machine_the_date_and_whether_it_was_quiet(begun, tmp_path):
    put(begun, "copy/m8n8/f32", "copy/some.base")
    page = report(begun, tmp_path)
    assert "<h1>mine</h1>" in page
    assert "<span>Some CPU</span> &middot; <span>1 January 2026, 10:00 UTC</span>" in page
    assert '<span class="badge clean">clean</span>' in page
    assert "NOISY" not in page


def test_a_noisy_run_has_its_badge_and_what_it_means_above_the_verdict(begun, tmp_path):
    disturbed = "others took 0.98 CPUs during 100 % of the sampling"
    put(begun, "copy/m8n8/f32", "copy/some.base", disturbed=disturbed)
    head = report(begun, tmp_path).partition('class="verdict"')[0]
    assert '<span class="badge noisy">noisy</span>' in head
    assert "NOISY: 1 of 1 case was disturbed (others took 0.98 CPUs). Rows marked ~ may be slower" in head


def test_the_title_of_a_known_suite_stands_on_top(store, tmp_path, registry):
    begin(store, suites=("smoke",))
    assert "<h1>Smoke: every CPU kernel on small shapes</h1>" in report(store, tmp_path, registry=registry)


def test_the_verdict_of_the_page_is_that_of_the_run(begun, tmp_path):
    for name, median in (("a", 1e-3), ("b", 2e-3)):
        put(begun, "copy/m8n8/f32", f"copy/some.{name}", taken=[median] * 6)
    assert findings.verdict(RunData(begun, "r1")) in report(begun, tmp_path)


def test_what_has_no_result_is_grouped_by_its_reason_and_only_failed_checks_stand_out(begun, tmp_path):
    for n in (1, 2):
        fail(begun, f"copy/m{n}n8/f32", f"copy/some.k{n}", "unsupported", reason="no f16 path")
    fail(begun, "copy/m3n8/f32", "copy/some.bad")
    page = report(begun, tmp_path)
    assert '<p class="refusal">2 unsupported: copy/some.k1, copy/some.k2: ' in page
    assert '<p class="bad">1 wrong: copy/some.bad: c[0] is NaN</p>' in page
    assert "A check failed." in page


def test_a_report_of_more_rows_than_anybody_reads_has_its_table_as_csv_alone(begun, tmp_path, monkeypatch):
    for n in (8, 16):
        put(begun, f"gemm/m{n}n8k8/f32/NN", "gemm/some.base")
    assert "tables/results.tex" in report(begun, tmp_path)
    monkeypatch.setattr("kernelmark.bench.report.page.MOST_TABLED", 1)
    page = report(begun, tmp_path)
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"results.csv"}
    assert "tables/results.tex" not in page
    assert "kernelmark export r1 --format latex" in page


def test_the_data_of_a_page_are_written_a_column_at_a_time_and_read_back_whole(store, tmp_path):
    varied(store)
    page = report(store, tmp_path)
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data = RunData(store, "r1")
    assert json.loads(text) == json.loads(json.dumps(page_data(data) | {"columns": dict(page_columns(data))}))
