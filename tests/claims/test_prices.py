"""Prices files: what they say for a claim, and what is refused in one line."""

import pytest

from kernelmark.bench.claims import claims_rows
from kernelmark.bench.claims.catalog import PRICES
from kernelmark.bench.claims.prices import check_known, load_prices
from support.rows import RUN, result

HEAD = 'currency = "EUR"\ndate = 2026-11-21\n'
CPU = '[[device]]\ndevice = "cpu"\nname = "Some CPU"\nper_hour = 1.0\n'
GPU = '[[device]]\ndevice = "cuda"\nname = "Some*"\nper_hour = 3.0\n'
SIZES = {16: (1.0, 2.0), 1024: (8.0, 1.0)}


@pytest.fixture
def write(tmp_path):
    def to(text):
        path = tmp_path / "prices.toml"
        path.write_text(text)
        return path

    return to


def row(kernel, m, time_s, **values):
    device, name = ("cuda", "Some GPU") if "cublas" in kernel else ("cpu", "Some CPU")
    problem = f"gemm/m{m}n{m}k{m}/f32/NN"
    where = {"device": device, "device_name": name, "problem": problem, "job": problem, "layout": "NN"}
    return result(**{**where, "kernel": kernel, "time_s_median": time_s, **values})


@pytest.fixture
def measured(store):
    """A GPU that loses at 16 and is eight times as fast at 1024."""
    store.begin(RUN)

    def record(**values):
        for m, (cpu_s, gpu_s) in SIZES.items():
            store.add(row("gemm/numpy.matmul", m, cpu_s, **values), {}, [cpu_s] * 12, None)
            store.add(row("gemm/cublas.sgemm", m, gpu_s, **values), {}, [gpu_s] * 12, None)
        return store

    return record


def answer(store, registry, claim, prices):
    (found,) = claims_rows(store, ["r1"], registry, prices, only=(claim,))
    return found


def test_the_example_is_read_and_holds_the_figures_of_the_founding_texts():
    prices = load_prices(None)
    assert [(d.device, d.per_hour) for d in prices.device] == [("cuda", 0.745), ("cpu", 0.509)]
    assert prices.currency == "USD"
    text = PRICES.read_text()
    assert all(figure in text for figure in ("3.725", "2.545", "75.0"))


def test_speed_is_set_against_the_price(measured, registry, write):
    found = answer(measured(), registry, "price-performance", load_prices(write(HEAD + CPU + GPU)))
    assert found.verdict == "depends"
    assert [(f.where, f.answer) for f in found.findings] == [("16", "no"), ("1024", "yes")]
    assert [f.ratio for f in found.findings] == [pytest.approx(1 / 6), pytest.approx(8 / 3)]
    assert "Some GPU: 3 EUR an hour (2026-11-21)" in found.notes


def test_a_device_without_a_price_is_what_is_missing(measured, registry, write):
    found = answer(measured(), registry, "price-performance", load_prices(write(HEAD + CPU)))
    assert found.verdict == "not measured"
    assert found.said == ("a price: the prices file has none for one of Some CPU, Some GPU",)


def test_without_a_gpu_it_is_no_price_that_is_missing(store, registry, write):
    store.begin(RUN)
    store.add(row("gemm/numpy.matmul", 16, 1.0), {}, [1.0] * 12, None)
    found = answer(store, registry, "price-performance", load_prices(write(HEAD + CPU + GPU)))
    assert found.said[0].startswith("some rows of the experiment 'gpu-sizes'")


def test_measured_energy_goes_before_declared_watts(measured, registry, write):
    store = measured(energy_j=5.0)
    found = answer(store, registry, "performance-per-watt", load_prices(write(HEAD + CPU + GPU + "watts = 75.0\n")))
    assert [(f.ratio, f.answer) for f in found.findings] == [(1.0, "tie")] * 2


def test_declared_watts_stand_in_where_nothing_was_measured(measured, registry, write):
    text = HEAD + CPU + "watts = 150.0\n" + GPU + "watts = 75.0\n"
    rows = measured(time_s_ci95_low=None)
    found = answer(rows, registry, "performance-per-watt", load_prices(write(text)))
    assert [f.ratio for f in found.findings] == [pytest.approx(1.0), pytest.approx(16.0)]
    assert "Some GPU: 3 EUR an hour (2026-11-21), 75 W declared" in found.notes


def test_no_sensor_and_no_watts_is_what_is_missing(measured, registry, write):
    found = answer(measured(), registry, "performance-per-watt", load_prices(write(HEAD + CPU + GPU)))
    assert found.verdict == "not testable here"
    assert found.said[0].startswith("energy: no sensor was read on Some CPU, Some GPU")


def test_a_sensor_that_read_no_energy_leaves_it_to_be_measured(measured, registry, write):
    found = answer(measured(power_w=100.0), registry, "performance-per-watt", load_prices(write(HEAD + CPU + GPU)))
    assert found.verdict == "not measured"
    assert found.said[0].endswith(
        "`kernelmark claims --only performance-per-watt` measures them on a machine with a GPU"
    )


def test_a_sensor_is_not_asked_for_where_watts_are_declared(measured, registry, write):
    text = HEAD + CPU + "watts = 150.0\n" + GPU
    found = answer(measured(), registry, "performance-per-watt", load_prices(write(text)))
    assert found.said[0].startswith("energy: no sensor was read on Some GPU, and")


def test_the_cpus_price_on_other_terms_is_set_against_the_gpus_own(measured, registry, write):
    text = HEAD + CPU + "otherwise_per_hour = 6.0\n" + GPU
    found = answer(measured(), registry, "preemptible-only", load_prices(write(text)))
    assert [f.ratio for f in found.findings] == [pytest.approx(1.0), pytest.approx(16.0)]


def test_a_file_without_prices_on_other_terms_says_so(measured, registry, write):
    found = answer(measured(), registry, "preemptible-only", load_prices(write(HEAD + CPU + GPU)))
    assert found.verdict == "not measured"
    assert found.said[0].startswith("a price on other terms (otherwise_per_hour): the prices file has none")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("currency = ", "is not TOML: "),
        ("\xff", "is not TOML: "),
        (CPU, "missing required field `currency`"),
        ('currency = "EUR"\n' + CPU, "missing required field `date`"),
        (HEAD, "missing required field `device`"),
        (HEAD + "device = []\n", "has no [[device]] table"),
        (HEAD + CPU.replace("per_hour = 1.0", ""), "missing required field `per_hour` - at `$.device[0]`"),
        (HEAD + CPU.replace("1.0", "0"), "per_hour is 0.0, expected a finite number above 0"),
        (HEAD + CPU + "otherwise_per_hour = -1.0\n", "otherwise_per_hour is -1.0, expected a finite number above 0"),
        (HEAD + CPU.replace("1.0", "nan"), "per_hour is nan, expected a finite number above 0"),
        (HEAD + CPU.replace("1.0", '"one"'), "Expected `float`, got `str`"),
        (HEAD + CPU.replace('"cpu"', '"tpu"'), "Invalid enum value 'tpu'"),
        (HEAD + CPU + "price = 1\n", "unknown field `price`"),
        (HEAD.replace("2026-11-21", "3") + CPU, "date is 3, expected a date"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_one_line(write, complaint, text, said):
    path = write("")
    path.write_bytes(text.encode("latin-1"))
    found = complaint(lambda: load_prices(path))
    assert found.startswith(f"{path}: ")
    assert said in found


def test_a_file_that_is_not_there_is_refused(tmp_path, complaint):
    assert "cannot be read" in complaint(lambda: load_prices(tmp_path / "none.toml"))


def test_a_file_of_devices_that_no_row_knows_is_refused(measured, write, complaint):
    path, store = write(HEAD + CPU.replace("Some CPU", "Other")), measured()
    said = complaint(lambda: check_known(load_prices(path), path, store, ["r1"]))
    assert said.startswith(
        f"{path}: has prices for 'Other' (cpu), expected one for 'Some CPU' (cpu) or 'Some GPU' (cuda)"
    )
    check_known(load_prices(write(HEAD + GPU)), path, store, ["r1"])
