"""What `watch` keeps of versions in the history of a kernel: sessions as with and without a GPU."""

import pytest

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.case import Budget
from kernelmark.bench.record.versions import digest_of
from kernelmark.bench.report.history import history_document, history_page, steps
from kernelmark.bench.tune.tuned import sources_of
from kernelmark.bench.tune.watch import session as watched
from kernelmark.bench.tune.watch.contenders import VersionTiming
from kernelmark.bench.tune.watch.session import Log
from support.tuning import BROKEN, PROBLEM, SOURCE, STAGED, version

KERNEL = "transpose/cuda.turned"
pytestmark = pytest.mark.usefixtures("cuda_compiler")


@pytest.fixture
def saved(folder, store):
    """Return a function that lets a session look at texts and logs them; the histories are in the store."""

    def all_of(session, *texts):
        log = Log(store, session)
        for number, text in enumerate(texts, 1):
            list(session.look(version(folder, number, text)))
            log.add({"turned.cu": text.encode()})
        return store.versions(KERNEL, PROBLEM)

    return all_of


@pytest.fixture
def emulator_passes(monkeypatch):
    """The emulator's part is left out: it is slow, and other tests have it."""
    from kernelmark.bench.tune.watch.emulator import Emulated

    monkeypatch.setattr(watched, "emulate", lambda *words: Emulated(words[1].tile_for(words[2], words[3]), skipped="x"))


def test_without_a_gpu_a_version_has_its_verdict_and_resources_and_no_rate(saved, session, registry):
    found = saved(session, SOURCE, STAGED.replace("if (i < m && j < n) ", ""))
    first, last = (kept.version for kept in found)
    assert (first.by, first.verdict, first.right, first.tile, first.arch) == ("watch", "PASS", True, "H=8", "sm_90a")
    assert last.verdict.startswith("FAIL, ")
    assert last.right is False
    assert first.registers
    assert (first.spill_bytes, first.time_s, first.compared) == (0, None, ())
    assert [step.against_first for step in steps(found)] == [None, None]
    assert found[0].digest == digest_of(sources_of(registry.kernels[KERNEL]))


@pytest.mark.usefixtures("emulator_passes")
def test_the_history_shows_a_diff_for_each_step_and_names_the_compilers_refusal(saved, session):
    found = saved(session, SOURCE, SOURCE, BROKEN)
    page = list(history_page(KERNEL, PROBLEM, found, diff=True))
    assert page[0] == f"{KERNEL} on {PROBLEM}: 3 versions, 0 right"
    assert page[-2] == "version 2 after version 1: the sources are the same"
    assert page[-1].startswith("version 3 after version 2\n--- turned.cu 2\n+++ turned.cu 3\n")
    assert "\n-  if (i < m && j < n) b[j * m + i]" in page[-1]
    assert "\n+  if (i < m && j < n) c[j * m + i]" in page[-1]
    assert found[2].version.verdict == "FAIL, does not compile"


@pytest.mark.usefixtures("emulator_passes")
def test_on_a_gpu_rates_of_one_job_have_their_interval_and_others_are_marked_as_quotients(saved, opened, monkeypatch):
    times = {"current": iter((4e-3, 2e-3, 1e-3)), "previous": iter((4e-3, 2e-3)), "gemm": iter((8e-3,) * 3)}

    def compared(comparison, current, previous):
        ids = (comparison.ids[0], *([comparison.ids[1]] if previous else []), "transpose/cublas.geam")
        medians = [next(times[name]) for name in ("current", *(["previous"] if previous else []), "gemm")]
        return [_measured(kernel, median) for kernel, median in zip(ids, medians, strict=True)]

    monkeypatch.setattr(watched, "compare", compared)
    session = opened()
    session._comparison = VersionTiming(KERNEL, PROBLEM, (), (), Budget(0.01))
    found = saved(session, SOURCE, STAGED, SOURCE)
    _, second, third = (step.against_first for step in steps(found))
    assert (second.in_turn, round(second.median)) == (True, 2)
    assert (third.in_turn, round(third.median)) == (False, 4)
    assert second.low <= 2 <= second.high
    text = "\n".join(history_page(KERNEL, PROBLEM, found, diff=False))
    assert "(not in turn)" in text
    assert "8x [8, 8] cublas.geam" in text
    document = history_document(KERNEL, PROBLEM, found)
    assert [[(one.kernel, one.version) for one in each.against] for each in document.versions] == [
        [("transpose/cublas.geam", None)],
        [("", 1), ("transpose/cublas.geam", None)],
        [("", 2), ("transpose/cublas.geam", None)],
    ]


def _measured(kernel, median):
    """What a worker reports of a contender whose samples scatter by a hundredth."""
    samples = [median * (1 + 0.01 * (i % 3 - 1)) for i in range(15)]
    return Measurement(
        kernel=kernel, problem=PROBLEM, job="j", samples=samples, interval=median_interval(samples), status="ok",
        device_name="Some GPU", interval_scope="within-process",
    )  # fmt: skip
