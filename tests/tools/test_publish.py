"""`make publish`: cases that are measured again, refusals, resumed experiments, and the files of a report."""

import json
import re
from unittest.mock import MagicMock

import pytest

import figures
import kernelmark
import publish
from kernelmark.bench.claims import answer, catalog
from kernelmark.bench.claims.prices import DevicePrice, Prices, load_prices
from kernelmark.bench.claims.views import write_files
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.figures import kinds
from kernelmark.bench.report.figures.trends import TITLE as OVER_RUNS
from kernelmark.bench.report.noise import Noise
from kernelmark.bench.report.publish import FILES, Report
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.tune.select.view import CHOSEN_TITLE
from kernelmark.bench.tune.select.view import TITLE as REGRET
from support.pages import DOCS, ROOT
from support.rows import DISTURBED, begin, put

PROBLEMS = ("copy/m31n35/f32", "copy/m35n31/f32")
KERNELS = ("copy/numpy.threaded", "copy/numpy.copyto")


def experiment(name, max_time):
    return catalog.Experiment(id=name, title=name, problems=PROBLEMS, kernels=KERNELS, max_time=max_time)


def claim(name, of):
    compared = catalog.Contrast(kind="kernels", one=KERNELS[:1], other=KERNELS[1:])
    words = {"words": name, "source": "", "applies": "", "number": "time over time"}
    return catalog.Claim(id=name, experiment=of, confirm=catalog.Confirm(above=1.0), comparison=compared, **words)


def use_small(monkeypatch):
    """Use three experiments, of which `dull` takes longest and `twice` has two claims."""
    experiments = (experiment("dull", 0.05), experiment("single", 0.01), experiment("twice", 0.01))
    judged = (claim("a", "dull"), claim("b", "single"), claim("c", "twice"), claim("d", "twice"))
    stand_in = catalog.Catalog(experiments, judged)
    for module in (catalog, answer):
        monkeypatch.setattr(module, "catalog", lambda: stand_in)


COMMIT, ANOTHER = "c0ffee1234567", "another"
TINY = ("--suites", "copy/m31n33/f32,copy/m33n31/f32", "--processes", "1", "--max-time", "0.01")


@pytest.fixture(autouse=True)
def commit(monkeypatch):
    """Let the present commit be that of the runs in `store`."""
    monkeypatch.setattr(publish, "git_commit", lambda: COMMIT)


@pytest.mark.parametrize(
    ("planned", "disturbed", "commit", "options", "resumed"),
    [
        (2, "", COMMIT, {}, "r1"),
        (1, "", COMMIT, {}, None),
        (1, DISTURBED, COMMIT, {}, "r1"),
        (1, DISTURBED, COMMIT, {"noisy_anyway": True}, None),
        (2, "", ANOTHER, {"current": True}, ""),
        (1, "", ANOTHER, {"current": None}, ""),
        (1, "", ANOTHER, {"current": False}, ""),
        (1, "", ANOTHER, {"current": True}, None),
    ],
)
def test_a_cut_off_or_noisy_run_is_resumed_and_a_finished_one_answers_for_its_commit_or_the_same_kernels(
    store, monkeypatch, planned, disturbed, commit, options, resumed
):
    begin(store, planned=planned)
    put(store, "copy/m8n8/f32", "copy/a.b", disturbed=disturbed)
    monkeypatch.setattr(publish, "git_commit", lambda: commit)
    assert publish._unfinished(store.path, **options) == resumed


def test_everything_is_measured_without_a_run(store, tmp_path):
    assert publish._unfinished(store.path) == ""
    assert publish._unfinished(tmp_path / "none.db") == ""


@pytest.fixture
def called(tmp_path, monkeypatch):
    monkeypatch.setattr(Report, "draw", lambda *_: [])
    place = ("--out", str(tmp_path / "reports"), "--db", str(tmp_path / "results.db"), "--minutes", "1")
    return lambda *words: publish.main([*place, *TINY, *words])


def noisy(store):
    begin(store)
    put(store, "copy/m8n8/f32", "copy/a.b", disturbed=DISTURBED)


def test_a_noisy_run_is_refused_before_anything_is_written(store, called, tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "measure", lambda *_, **__: 0)
    noisy(store)
    with pytest.raises(UsageError, match="publish: NOISY: 1 of 1 case"):
        called()
    assert not (tmp_path / "reports").exists()


def test_a_missing_prices_file_is_refused_before_anything_is_deleted_or_measured(store, called, tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "measure", MagicMock(side_effect=AssertionError))
    with pytest.raises(UsageError, match=r"none\.toml"):
        called("--fresh", "--prices", str(tmp_path / "none.toml"))
    assert store.path.exists()


def test_a_noisy_run_is_published_on_request_with_a_warning_and_the_experiments_that_are_left(
    store, called, tmp_path, monkeypatch
):
    use_small(monkeypatch)
    noisy(store)
    called("--noisy-anyway")
    (page,) = (tmp_path / "reports").glob("*/README.md")
    lines = page.read_text().splitlines()
    assert lines[2].startswith("> **NOISY: 1 of 1 case")
    assert "## Experiments of claims that are left" in lines
    assert sum(line.endswith("; `make publish` continues it") for line in lines) == 3


def test_suites_are_measured_again_when_their_kernels_have_changed(store, monkeypatch):
    begin(store, planned=1)
    put(store, "copy/m8n8/f32", "copy/a.b")
    begun = MagicMock()
    begun.return_value.__enter__.return_value.wait.return_value = 0
    monkeypatch.setattr(publish.subprocess, "Popen", begun)
    for current in (True, False):
        publish.measure(store.path, publish._options(TINY), 0.0, current)
    ((command,), _) = begun.call_args
    assert begun.call_count == 1
    assert "copy/m31n33/f32" in command
    assert "--resume" not in command


@pytest.mark.long
def test_a_tiny_report_is_measured_published_and_indexed_and_a_second_call_changes_nothing(
    called, tmp_path, monkeypatch
):
    use_small(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert called("--noisy-anyway", "--minutes", "3") == 0
    (folder,) = (path for path in (tmp_path / "reports").iterdir() if path.is_dir())
    assert {path.name for path in folder.iterdir()} == set(FILES) - {"figures"}
    assert f"]({folder.name}/README.md)" in (tmp_path / "reports" / "README.md").read_text()
    before = (folder / "agenda.json").read_text(), (folder / "results.csv").read_text()
    answers = json.loads(before[0])["answers"]
    assert list(answers) == ["suites", "claim twice", "claim single", "claim dull"]
    page = (folder / "README.md").read_text()
    assert "Experiments of claims that are left" not in page
    assert answers["suites"]["run"] in page
    assert called("--noisy-anyway", "--minutes", "3") == 0
    assert ((folder / "agenda.json").read_text(), (folder / "results.csv").read_text()) == before


def test_docs_list_the_files_of_a_report():
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert dict(rows) == FILES


def test_figures_on_the_page_are_those_in_its_folder_and_small():
    shown = set(re.findall(r"\(figures/([^)]+)\)", (DOCS / "figures.md").read_text()))
    assert shown == {path.name for path in (DOCS / "figures").iterdir()}
    assert [path.name for path in (DOCS / "figures").iterdir() if path.stat().st_size > figures.MOST_BYTES] == []


def test_the_page_of_figures_has_every_kind(begun):
    titles = {kind.title for kind in kinds(RunData(begun, "r1"))} - {OVER_RUNS} | {REGRET, CHOSEN_TITLE}
    assert set(re.findall(r"^## (.+)$", (DOCS / "figures.md").read_text(), re.MULTILINE)) == titles


def test_a_slim_figure_keeps_its_references():
    glyph = '<path id="DejaVuSans-6f" d="M 1.23456 2 "/>'
    svg = f'<g id="axes_1">\n  <g id="used">\n   {glyph}\n <use href="#DejaVuSans-6f"/>#used'
    slim = '<g>\n<g id="used">\n<path id="n6f" d="M 1.234 2 "/>\n<use href="#n6f"/>#used'
    assert figures.slim(svg) == slim


def test_the_citation_names_this_version():
    assert f"\nversion: {kernelmark.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_price_of_a_report_is_the_first_cpu_price_whose_name_matches(monkeypatch):
    monkeypatch.setattr(publish, "cpu_name", lambda: "Some CPU")
    priced = [("cuda", "*", 9, ""), ("cpu", "Other*", 8, ""), ("cpu", "Some*", 0.5, ""), ("cpu", "*", 7, "spot")]
    devices = tuple(DevicePrice(device, name, price, terms=terms) for device, name, price, terms in priced)
    prices = Prices(currency="USD", date="July 2026", device=devices)
    assert publish._price(prices) == publish.Price(0.5, "USD", "0.5 USD an hour (July 2026)")
    monkeypatch.setattr(publish, "cpu_name", lambda: "Another CPU")
    assert publish._price(prices).words == "7 USD an hour (July 2026; spot)"


FOREVER = float("inf")


@pytest.fixture
def made(begun, registry, tmp_path, monkeypatch):
    """Return a function that makes the experiments of a call of `make publish`, which take a second or two each."""
    use_small(monkeypatch)
    agenda_ = publish.Agenda()
    return lambda store=begun, agenda_=agenda_, anyway=True: publish.Experiments(
        store, agenda_, tmp_path, registry, "r1", anyway
    )


def measured(store):
    return [store.run(run).command.split()[3] for run in store.run_ids() if run != "r1"]


def test_experiments_are_measured_once_in_the_order_of_their_worth(made, store):
    made().measure(FOREVER)
    assert measured(store) == ["twice", "single", "dull"]
    again = made()
    again.measure(FOREVER)
    assert len(measured(store)) == 3
    assert list(again.runs) == ["claim twice", "claim single", "claim dull"]
    assert again.left() == ""


def test_a_stopped_experiment_is_resumed_and_those_left_are_listed_with_the_command(made, store, monkeypatch):
    stopped, clock = made(), publish.now
    begun_before = [run for run in store.run_ids() if run != "r1"]
    monkeypatch.setattr(publish, "now", lambda: 200.0 * any(store.statuses(run) for run in store.run_ids()))
    stopped.measure(100.0)
    assert (begun_before, measured(store), stopped.runs) == ([], ["twice"], {})
    lines = stopped.left().splitlines()
    assert [line.split("no time was left to finish it")[0] for line in lines] == ["- dull: ", "- single: ", "- twice: "]
    assert all(line.endswith("`make publish` continues it") for line in lines)
    monkeypatch.setattr(publish, "now", clock)
    begun = store.run_ids()[-1]
    made().measure(clock() + 3.0)  # less than the expected time of `dull`
    assert (made().runs["claim twice"], store.statuses(begun)) == (begun, {"ok": 4})
    assert made().left().startswith("- dull: ")


def test_a_noisy_experiment_is_measured_twice_and_published_on_request(made, store, monkeypatch):
    monkeypatch.setattr(publish, "noise", lambda store, runs: Noise(1, 4, "others"))
    refused = made(anyway=False)
    refused.tasks = refused.tasks[-1:]
    for command in ("`make publish` continues it", "`make publish PUBLISH_ARGS=--noisy-anyway` publishes it"):
        refused.measure(FOREVER)
        assert refused.left() == f"- twice: NOISY: 1 of 4 cases was disturbed (others); {command}"
    refused.measure(FOREVER)
    assert (refused.runs, measured(store)) == ({}, ["twice"])
    anyway = made(anyway=True)
    anyway.tasks = anyway.tasks[-1:]
    anyway.measure(FOREVER)
    assert (list(anyway.runs), measured(store)) == (["claim twice"], ["twice"])


def answered(store, made):
    """Store the suites' run, with the first kernel slower, and run r2, with it faster; return an agenda with r2."""
    for run, seconds in (("r1", (2e-3, 1e-3)), ("r2", (1e-3, 2e-3))):
        if run != "r1":
            begin(store, run)
        for problem in PROBLEMS:
            for kernel, median in zip(KERNELS, seconds, strict=True):
                put(store, problem, kernel, median, run_id=run, threads=cpu_count() if kernel in KERNELS[:1] else 1)
    digest = next(task.digest for task in made().tasks if task.detail == "single")
    return publish.Agenda(answers={"claim single": publish.agenda.Answer(digest=digest, run="r2")})


def verdicts(experiments):
    return {claim.id: (claim.verdict, claim.run_ids) for claim in experiments.judged(load_prices(None))}


def test_a_claim_is_judged_by_the_rows_of_one_run(made, store):
    judged = verdicts(made(agenda_=answered(store, made)))
    assert judged == {"b": ("confirmed", ("r2",)), **dict.fromkeys("acd", ("refuted", ("r1",)))}


def test_an_experiment_whose_cases_the_suites_include_is_not_measured(made, store):
    answered(store, made)
    made().measure(FOREVER)
    assert store.run_ids() == ["r1", "r2"]


def test_a_verdict_survives_the_loss_of_the_store_as_long_as_the_report_has_its_claims(made, store, tmp_path):
    agenda = answered(store, made)
    first = made(agenda_=agenda)
    write_files(tmp_path, first.judged(load_prices(None)), "here")
    other = Store(tmp_path / "other.db")
    begin(other)
    later = made(other, agenda)
    assert verdicts(later)["b"] == ("confirmed", ("r2",))
    assert [claim.findings for claim in later.judged(load_prices(None)) if claim.id == "b"] == [
        claim.findings for claim in first.judged(load_prices(None)) if claim.id == "b"
    ]
    assert "single" not in later.left()
    (tmp_path / "claims.csv").unlink()
    later = made(other, agenda)
    assert verdicts(later)["b"][0] == "not measured"
    assert "- single: " in later.left()
    other.close()
