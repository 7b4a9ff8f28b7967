"""Inputs that once broke the command, some new ones, and the rules by which faults are found."""

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuzz import __main__ as command
from fuzz import campaign
from fuzz.campaign import Fault, Report, Setting, batch, smallest, tried
from fuzz.inputs import Damage, File, Input, Step, digest, make_samples, read, write
from fuzz.perform import Observed, Outcome, faults

CORPUS = sorted(Path(__file__).with_name("corpus").glob("*.json"))
REST = [path for path in CORPUS if path not in CORPUS[::5]]
#: Kinds of input that hardly ever measure anything.
QUICK = ("prices", "defaults", "imports", "plugins")
GOOD = Outcome(0)
PLUGIN = Step(("list", "--plugin", "mine.py"))


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    samples = make_samples(tmp_path_factory.mktemp("samples"))
    return Setting(samples, tmp_path_factory.mktemp("fuzz"), limit_s=60.0, kinds=QUICK)  # other tests use the CPUs


@pytest.fixture(scope="module")
def reported(setting: Setting) -> Iterator[Callable[..., Report]]:
    """Return a function that runs a function of the campaign in another process, which forks for each step."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield lambda work, *given, setting=setting: pool.submit(work, setting, *given).result()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Input]:
    """Return the list of drawn inputs, which are not performed; each `import` is reported as a fault."""
    inputs: list[Input] = []

    def noted(_: Setting, given: Input, seed: int = 0) -> Report:
        inputs.append(given)
        bad = [Fault(given, "hang", seed)] if given.steps[0].words[:1] == ("import",) else []
        return Report(bad, Counter(), Counter())

    monkeypatch.setattr(campaign, "tried", noted)
    return inputs


def words(report: Report) -> list[str]:
    return [fault.words for fault in report.faults]


@pytest.mark.parametrize("paths", [CORPUS[::5], pytest.param(REST, marks=pytest.mark.long)], ids=["some", "others"])
def test_no_input_of_the_corpus_breaks_the_command_again(reported, paths: list[Path]) -> None:
    broken = {path.stem: words(reported(tried, read(path))) for path in paths}
    assert {name: texts for name, texts in broken.items() if texts} == {}


@pytest.mark.long
def test_thirty_drawn_inputs_do_not_break_the_command(reported) -> None:
    report = reported(batch, 3, 30)
    assert words(report) == []
    assert report.commands.total() >= 25


def test_one_seed_draws_the_same_inputs_and_none_twice(setting: Setting, drawn: list[Input]) -> None:
    for seed in (3, 3, 4):
        batch(setting, seed, 20)
    assert drawn[:20] == drawn[20:40] != drawn[40:]
    assert [len({digest(given) for given in part}) for part in (drawn[:20], drawn[40:])] == [20, 20]


def test_a_campaign_continues_after_a_given_number_of_inputs(setting: Setting) -> None:
    def numbers(start: int, inputs: int) -> list[tuple[int, int]]:
        pool = SimpleNamespace(submit=lambda *given: given[2:])
        return list(command.submitted(pool, setting, Namespace(replay=None, seed=3, start=start, inputs=inputs)))

    assert numbers(0, 120) == [*numbers(0, 100), *numbers(100, 20)]


def test_a_smaller_input_with_a_fault_of_the_same_kind_is_found(setting: Setting, drawn: list[Input]) -> None:
    large = Fault(Input((Step(("import", *map(str, range(50)))),)), "hang", 1)
    small = smallest(setting._replace(kinds=("imports",)), large)
    assert small.kind == large.kind
    assert len(small.given.steps[0].words) < 10


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("step", "text", "expected"),
    [
        (PLUGIN, "import os\nos._exit(7)", ["exit 7: "]),
        (Step(("nothing",), refused=True), "", []),
        (Step(("list",), refused=True), "", ["not refused: exit 0: "]),
    ],
)
def test_a_step_has_the_exit_status_and_the_streams_of_a_process(reported, fresh, step, text, expected) -> None:
    step = Step(step.words, refused=step.refused, fresh=fresh)
    assert words(reported(tried, Input((step,), {"mine.py": File(text)}))) == expected


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\nos._exit(2)", "left running: "),
        ("while True: pass", "hang: goes on"),
        ("import time\ntime.sleep(60)", "hang: goes on"),
    ],
)
def test_a_step_that_does_not_end_is_reported_and_killed(reported, setting: Setting, text: str, beginning: str) -> None:
    given = Input((PLUGIN,), {"mine.py": File(text)})
    assert words(reported(tried, given, setting=setting._replace(limit_s=0.5)))[0].startswith(beginning)


@pytest.mark.parametrize(
    ("called", "outcome", "beginning"),
    [
        ("show", Outcome(3, "", "kernelmark: defect: KeyError"), "exit 3: kernelmark: defect: KeyError"),
        ("show", Outcome(-11), "SIGSEGV: "),
        ("show", Outcome(1, "", "Traceback (most recent call last):\n  KeyError: 1"), "traceback:   KeyError: 1"),
        ("show", Outcome(0, hung=True), "hang: goes on"),
        ("show", Outcome(0, hung=True, interrupted=True), "hang: goes on after an interrupt"),
        ("show", Outcome(0, left=("sleep 60",)), "left running: sleep 60"),
        ("show", Outcome(2, "", f"kernelmark: {'x' * 300}"), "a line of 312 characters: "),
        ("show", Outcome(2, "", "kernelmark: one\nkernelmark: two"), "2 lines: kernelmark: one | kernelmark: two"),
        ("show", Outcome(2, "", "kernelmark: one\nmore of it"), "2 lines: kernelmark: one | more of it"),
        ("show", Outcome(2, "usage"), "refused without a word: usage"),
        ("show", Outcome(0, "", "UserWarning: x"), "warning: UserWarning: x"),
        ("show --json", Outcome(0, "{'a': 1}"), "no JSON: "),
        ("export --format json", Outcome(0, '{"a": NaN}'), "no JSON: "),
        ("export", Outcome(0, "a,b\n1\n"), "no CSV: lines of 1 and 2 cells"),
        ("export", Outcome(0, 'a,b\n"1,2\n'), "no CSV: "),
        ("show", GOOD, ""),
        ("show", Outcome(2, "", "kernelmark: one\n"), ""),
        ("show", Outcome(130, "", "[1/2] x\n[2/2] y"), ""),
        ("show", Outcome(1), ""),
        ("run", Outcome(-2, interrupted=True), ""),
        ("show --json", Outcome(0, '{"a": 1}'), ""),
        ("export --format latex", Outcome(0, "a,b\n1\n"), ""),
    ],
)
def test_each_fault_is_named_and_no_other(called: str, outcome: Outcome, beginning: str) -> None:
    listed = faults(Input((Step(tuple(called.split())),)), Observed([outcome]))
    assert [fault for fault in listed if fault.startswith(beginning)] if beginning else listed == []


def test_changed_files_that_no_word_names_are_faults() -> None:
    called = ("export", "--csv=out.csv", "-o", "table.tex", "--out", "new/place", "--db=a=b")
    changed = ["out.csv", "new/place/out.csv", "table.tex", "table-gemm.tex", "a=b", "other", "rows.db"]
    listed = faults(Input((Step(called),)), Observed([GOOD], changed))
    assert listed == ["file left or changed: other", "file left or changed: rows.db"]


def test_a_written_input_is_read_back_unchanged(tmp_path: Path) -> None:
    files = {"a\udcff": File("é\udcff\0"), "b": File(sample="rows.db", damage=(Damage("flip", 0.5, 3),))}
    given = Input((Step(("run", "\udcff"), patience_s=0.5),), files)
    assert read(write(tmp_path / "e.json", "note", given)) == given
