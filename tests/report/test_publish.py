"""Published reports: the files in their folder, names that are hidden, the index, and runs on several hosts."""

import json
import re
import socket
from itertools import product

import msgspec
import pytest

from kernelmark.bench.measure.measurement import Ceiling
from kernelmark.bench.record.records import Layer
from kernelmark.bench.report import publish
from kernelmark.bench.report.anonymity import mask
from kernelmark.bench.report.export import write_file
from kernelmark.bench.report.places import places
from kernelmark.bench.report.publish_index import Price, write_index
from kernelmark.bench.report.show import run_end
from support.rows import DISTURBED, begin, fail, put, result
from support.texts import csv_rows

UUID = "GPU-0a1b2c3d-0000-1111-2222-333344445555"
JUDGED = 'id,verdict,words,said,ratio\na,refuted,"op_T, they claim",0.9x,0.9\nb,depends,c,,\n'
PRICE = Price(0.5, "USD", "0.5 USD an hour")


def about(**values):
    known = {"title": "Some CPU, 2 CPUs", "date": "2026-01-31", "runs": {"mine": "r1"}, "command": "make publish"}
    return publish.Publication(**{**known, "price": PRICE, **values})


@pytest.fixture
def published(store, tmp_path, monkeypatch):
    """Publish the runs of the store, by default without figures, and return the folder."""

    def of(drawn=False, **values):
        if not drawn:
            monkeypatch.setattr(publish.Report, "draw", lambda *_: [])
        folder = tmp_path / "reports" / publish.folder_name("Some CPU, 2 CPUs")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / publish.CLAIMS).write_text(JUDGED)
        publish.write(folder, publish.Report(store, about(**values), folder), None)
        return folder

    return of


def network(store, energies=(None, None)):
    begin(store)
    for part, layout, energy in zip(("forward", "backward"), ("NT", "NN"), energies, strict=True):
        problem = f"gemm/m8n8k8/f32/{layout}"
        put(store, problem, "gemm/a.b", taken=[2e-3] * 20, energy_j=energy)
        put(store, problem, "gemm/a.slow", taken=[3e-3] * 20)
        store.add_layer("r1", Layer("net", problem, part, 3))


@pytest.mark.long
def test_a_report_with_figures_reads_from_the_answer_to_the_files(store, published, tmp_path):
    network(store)
    fail(store, "gemm/m8n8k8/f32/NT", "gemm/a.bad")
    old = tmp_path / "reports" / "some-cpu-2-cpus" / publish.FIGURES / "of-an-earlier-report.svg"
    old.parent.mkdir(parents=True)
    old.write_text("<svg/>")
    folder = published(drawn=True)
    assert not old.exists()
    assert folder.name == "some-cpu-2-cpus"
    assert {path.name for path in folder.iterdir()} == set(publish.FILES) - {"claims.md", "agenda.json"}
    assert {path.suffix for path in (folder / publish.FIGURES).iterdir()} == {".svg"}
    text = (folder / publish.README).read_text()
    order = ("# Some CPU, 2 CPUs, 2026-01-31", "**Who is fastest?** Fastest: ", "## Figures", '<img src="figures/')
    order += ("## Fastest kernels", "## Founding claims", "2 claims: 1 refuted, 1 depends.", "## How it was measured")
    order += ("## What was noisy", "Nothing: no case was disturbed", "## Rows without a result", "## Files")
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "| refuted | op_T, they claim | 0.9x |" in re.sub(" +", " ", text)
    shown = re.findall(r'src="([^"]+)"|\]\(([^)]+)\)', text)
    assert len(shown) > len(publish.FILES)
    assert [name for pair in shown for name in pair if name and not (folder / name).exists()] == []


def test_a_noisy_run_is_refused_in_one_line_unless_asked_for_and_then_begins_with_that(begun, published, complaint):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/a.quiet")
    publish.refuse_noise(publish.noise(begun, {"mine": "r1"}), anyway=False)
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/a.b", disturbed=DISTURBED)
    noise = publish.noise(begun, {"mine": "r1"})
    text = complaint(lambda: publish.refuse_noise(noise, anyway=False))
    assert text.startswith("publish: NOISY: 1 of 2 cases was disturbed (other processes used 0.98 CPUs)")
    assert "--noisy-anyway" in text
    publish.refuse_noise(noise, anyway=True)
    lines = (published(anyway=True) / publish.README).read_text().splitlines()
    assert lines[2].startswith(f"> **{noise.sentence}.** It is published anyway.")


@pytest.mark.parametrize("identify", [False, True])
def test_hosts_users_and_uuids_are_hashed_unless_they_are_asked_for(store, published, identify):
    begin(store, command="kernelmark run /home/jane/mine.toml --db /home/jane/x.db")
    reason = f"{UUID} is not {socket.gethostname()}.local of /home/jane/kernels"
    put(store, "gemm/m8n8k8/f32/NN", "gemm/a.b", host="bignode7", device_uuid=UUID)
    fail(store, "gemm/m8n8k8/f32/NN", "gemm/a.bad", status="failed", host="bignode7")
    with store._db as db:
        db.execute("UPDATE result SET reason = ? WHERE status = 'failed'", (reason,))
    files = published(identify=identify).rglob("*")
    text = "".join(path.read_text() for path in files if path.suffix in (".md", ".json", ".csv"))
    for name in ("bignode7", "/home/jane", UUID[4:]):
        assert (name in text) == identify
    if not identify:
        (row,) = [row for row in csv_rows(published() / "results.csv") if row["samples"] != "0"]
        assert re.fullmatch(r"host-[0-9a-f]{8}", row["host"])
        assert re.fullmatch(r"uuid-[0-9a-f]{8}", row["device_uuid"])


def test_a_name_is_hashed_as_a_whole_word_and_always_to_the_same():
    hide = mask(["node"])
    assert hide("node: nodes of node") == f"{hide('node')}: nodes of {hide('node')}"
    assert hide("node").startswith("host-")
    assert mask(["cpu"])("cpu") == "cpu"


def test_the_index_answers_for_each_machine_and_prices_its_networks(store, published):
    network(store)
    index = write_index(published().parent).read_text()
    assert "[Some CPU, 2 CPUs](some-cpu-2-cpus/README.md)" in index
    assert "The founding product was not measured." in index
    cells = [[cell.strip() for cell in line.split("|")] for line in index.splitlines() if "| net " in line]
    assert [(row[3], row[4].split(" [")[0], row[5]) for row in cells] == [
        ("forward", "6.00 ms", "1200000 per USD"),
        ("forward + backward", "12.0 ms", "600000 per USD"),
    ]
    assert "- Some CPU, 2 CPUs: 0.5 USD an hour" in index


@pytest.mark.parametrize(("energies", "joules"), [((0.5, 0.5), 3.0), ((0.5, None), None)])
def test_energy_is_shown_only_where_it_was_measured_of_every_layer(store, published, energies, joules):
    network(store, energies)
    networks = json.loads((published() / "environment.json").read_text())["report"]["networks"]
    assert networks[1]["joules"] == (joules and pytest.approx(joules))


def test_a_network_with_a_noisy_layer_is_marked_in_the_index(store, published):
    network(store)
    put(store, "gemm/m8n8k8/f32/TT", "gemm/a.b", taken=[1e-3] * 20, disturbed=DISTURBED)
    store.add_layer("r1", Layer("other", "gemm/m8n8k8/f32/TT", "forward", 1))
    lines = write_index(published().parent).read_text().splitlines()
    assert [("| ~1.00 ms" in line, "~6.00 ms" in line) for line in lines if "| other " in line] == [(True, False)]
    assert not any("~6.00 ms" in line for line in lines)


def test_the_index_shows_the_latest_report_first_and_passes_over_what_is_no_report(begun, published, tmp_path):
    assert "`make publish`" in write_index(tmp_path / "reports").read_text()
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/a.b")
    later = published(date="2026-02-01").rename(tmp_path / "reports" / "later")
    published()
    (later.parent / "local").mkdir()
    (later.parent / "local" / "environment.json").write_text("{}")
    index = write_index(later.parent).read_text()
    assert re.findall(r"\]\(([^/]+)/", index) == ["later", "some-cpu-2-cpus"]


def test_rows_of_earlier_reports_stay_in_the_results_and_their_runs_are_listed(store, published):
    for run in ("r1", "r2"):
        begin(store, run)
        put(store, "gemm/m8n8k8/f32/NN", "gemm/a.b", run_id=run)
        folder = published(runs={"mine": run})
    assert [row["run_id"] for row in csv_rows(folder / "results.csv")] == ["r1", "r2"]
    earlier = (folder / publish.README).read_text().partition("## Earlier runs")[2]
    assert re.search(r"\| r1 +\| 2026-01-01T10:00:01\S+ +\| 1 +\| c0ffee1234567 +\|", earlier)


def test_the_tables_hold_no_gpu_to_numpy_and_say_what_was_not_timed(begun, published):
    ratio = {"baseline": "gemm/numpy.matmul", "speedup": 333.0, "job": "one"}
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/numpy.matmul", 1.0, **{**ratio, "speedup": None})
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/cuda.a", device="cuda", **ratio)
    put(begun, "gemm/m8n8k8/f32/NT", "gemm/numpy.matmul", 1.0, **{**ratio, "speedup": None})
    put(begun, "gemm/m8n8k8/f32/NT", "gemm/openblas.a", **{**ratio, "speedup": 1.25})
    begin(begun, "r2")
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/cuda.a", run_id="r2", mode="verify", time_s_median=None)
    begin(begun, "r3")
    tables = (published(runs={"a": "r1", "b": "r2", "c": "r3"}) / "tables.md").read_text()
    assert "333x" not in tables
    assert tables.count("speedup against gemm/numpy.matmul") == 1
    assert "1 row: 1 ok. They were verified only, and not timed." in tables
    assert "Not finished: no row was recorded." in tables


def test_the_first_lines_are_of_the_runs_that_are_shown_or_named_or_else_of_the_largest(store, tmp_path):
    for run, times in (("r1", 9), ("r2", 2)):
        begin(store, run)
        for i in range(times):
            put(store, f"gemm/m{8 + i}n8k8/f32/NN", "gemm/cuda.a", run_id=run, device="cuda")
    runs = about(runs={"a": "r1", "b": "r2"})
    reports = [publish.Report(store, runs, tmp_path, shown) for shown in ((), ["r2"], ["r3"])]
    reports.append(publish.Report(store, msgspec.structs.replace(runs, main="r2"), tmp_path))
    assert [report.main.run_id for report in reports] == ["r1", "r2", "r1", "r2"]


CEILING = Ceiling("cuda", 1, "fp32", "fma/n1k1/f32", "fma/a.b", "A GPU", 1e12, 0.99e12, 1.01e12, 1e12, "1")
GPU = {"device": "cuda", "device_name": "A GPU"}


def put_on(store, number, host, uuid, rate=1.0):
    store.add(result(problem=f"copy/m{number}n1/f32", host=host, device_uuid=uuid, **GPU), {}, [1.0], None)
    rates = {name: rate * getattr(CEILING, name) for name in ("rate", "low", "high", "best")}
    store.add_ceiling("r1", msgspec.structs.replace(CEILING, host=host, device_uuid=uuid, **rates))


def words(parts):
    return [" ".join(line.split()) for part in parts for line in part.splitlines()]


def test_two_gpus_of_one_name_stand_side_by_side_with_the_spread_of_their_ceilings(begun):
    put_on(begun, 1, "one", "GPU-a")
    put_on(begun, 2, "one", "GPU-b", 1.1)
    printed = words(places(begun, "r1"))
    assert printed[2:4] == ["1 one A GPU GPU-a 1", "2 one A GPU GPU-b 1"]
    rates = "1000 GFLOP/s 1 1100 GFLOP/s 2 1.1x [1.08, 1.12] (not measured on one machine)"
    assert f"cuda fp32 fma/n1k1/f32 {rates}" in printed
    assert printed[-1] == "ceilings that agree everywhere: 0 of 1; others: cuda fp32"
    assert printed[-1] in words(run_end(begun, "r1"))


def test_devices_whose_ceilings_agree_are_alike_and_one_host_with_one_gpu_has_no_such_table(begun):
    put_on(begun, 1, "one", "GPU-a")
    begun.add(result(problem="copy/m9n1/f32", host="one", device_name="A CPU"), {}, [1.0], None)
    assert list(places(begun, "r1")) == []
    put_on(begun, 2, "two", "GPU-b", 1.001)
    assert words(places(begun, "r1"))[-1] == "ceilings that agree everywhere: 1 of 1"


def test_exported_rows_ceilings_and_plans_name_no_host_and_no_gpu_unless_they_are_to(begun, tmp_path):
    where = {"host": "one.example", "device_uuid": "GPU-a"}
    begin(begun, "r2", plan={"gpus": ["GPU-a"]})
    begun.add_ceiling("r2", msgspec.structs.replace(CEILING, **where))
    begin(begun, "r3")
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/a.b", run_id="r3", **where)
    for identifies, (run, style) in product((False, True), (("r2", "json"), ("r3", "json"), ("r3", "csv"))):
        begun.identifies = identifies
        write_file(begun, [run], style, tmp_path / "r")
        text = (tmp_path / "r").read_text()
        assert ("GPU-a" in text, "one.example" in text) == (identifies, identifies)


def test_places_name_no_host_and_no_device_unless_they_are_to(begun):
    put_on(begun, 1, "one", "GPU-a")
    put_on(begun, 2, "two", "GPU-b")
    page = "".join(places(begun, "r1", "html", identify=False))
    assert "GPU-a" not in page
    assert page.count("uuid-") == page.count("host-") == 2
    assert "GPU-a" in "".join(places(begun, "r1", "html"))
