"""Claims about aggregation, about hardware and about prices."""

import pytest

from kernelmark.bench.claims.answer import Hardware, claims_rows, untestable
from kernelmark.bench.claims.catalog import PRICES, catalog, claims, experiment, files
from kernelmark.bench.claims.evidence import entries
from kernelmark.bench.claims.prices import Prices, check_known, load_prices
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.report.strategies import EIGHT_BITS, ONE_BIT
from support.rows import begin

LSTM = "aggregate/w4n1048576/f32/ef"
GPU = {"device": "cuda", "device_name": "CUDA", "threads": 1}
GRADIENT_S = 4 * 1048576 / 8e9


def test_a_stated_link_is_added_to_the_additions_of_one_worker(put, verdict):
    put("aggregate/cpu.ring", LSTM, 0.004)
    put("aggregate/cpu.onebit", LSTM, 0.008, numerics="onebit")
    (finding,) = verdict("onebit-pays").findings
    ring, onebit = 0.001 + 1.5 * GRADIENT_S, 0.002 + 1.5 * GRADIENT_S / ONE_BIT
    assert finding.ratio == pytest.approx(ring / onebit)
    assert (finding.where, finding.by) == ("LSTM, 4 workers", "cpu.onebit against cpu.ring")
    assert finding.in_turn


@pytest.mark.parametrize(
    ("claim", "times", "wins"),
    [
        ("mxnet-over-torch", {"cpu.ring": 4, "process.ring": 2, "cpu.host_parallel": 4}, "process.ring"),
        # GPUs do not count here: no link is added to their transfers, and their sums are no additions of the CPU.
        ("mxnet-over-torch", {"cpu.ring": 2, "p2p.ring": 1, "cpu.host_parallel": 4}, "cpu.ring"),
        ("mxnet-over-torch", {"cpu.ring": 2, "cuda.host_parallel": 0.1, "cpu.host_parallel": 4}, "cpu.ring"),
        ("ranking-peers", {"p2p.tree": 1, "cuda.host_parallel": 4}, "p2p.tree"),
        ("host-parallel", {"cpu.host_parallel": 1, "cpu.host_serial": 2}, "cpu.host_parallel"),
    ],
)
def test_the_fastest_strategy_on_a_claim_s_device_is_compared_with_another_in_turn(put, verdict, claim, times, wins):
    for kernel, time_ms in times.items():
        put(f"aggregate/{kernel}", LSTM, 1e-3 * time_ms, **({} if kernel.startswith(("cpu", "process")) else GPU))
    (finding,) = verdict(claim).findings
    assert (finding.by, finding.in_turn) == (f"{wins} against {kernel}", True)
    if claim != "mxnet-over-torch":  # this claim adds a link
        assert finding.ratio == pytest.approx(times[kernel] / times[wins])


def test_strategies_that_were_not_measured_give_no_number(put, verdict):
    put("aggregate/cpu.ring", LSTM, 0.004)
    assert verdict("onebit-pays").verdict == "not measured"


def test_a_network_with_many_weights_for_its_work_scales_worse(fill, put, verdict, registry):
    (claim,) = claims(["alexnet-scales-worse"])
    fill(claim.id, 0.01, {"conv": "conv/cpu.im2col", "gemm": "gemm/scipy.sgemm"})
    problems = {layer.entry.problem.id: layer.entry.problem for layer in entries(experiment(claim), registry)}
    for problem in problems.values():
        if problem.op == "aggregate":
            put("aggregate/cpu.tree", problem.id, 1e-9 * problem.n)
    answer = verdict(claim.id)
    assert [f.where.split(",")[0] for f in answer.findings] == ["googlenet against alexnet", "resnet50 against alexnet"]
    assert all(f.ratio > 1 for f in answer.findings)
    assert answer.verdict == "confirmed"


ON_A_GPU = {"conv": "conv/cudnn.implicit_gemm", "gemm": "gemm/cublas.sgemm"}
ALEXNET = "aggregate/w4n62367776/f32/ef"


def test_a_speedup_is_computed_from_a_gpus_layers_its_additions_and_a_link(fill, put, verdict):
    fill("linear-8-p100", 0.01, ON_A_GPU, threads=1)
    put("aggregate/cuda.tree", ALEXNET, 0.005, **GPU)
    answer = verdict("linear-8-p100")
    (finding,) = answer.findings
    layers = len(finding.rows) - 1
    added = 0.005 * 9 / 5 * 3 / 7 + 2 * 3 * 4 * 62367776 / 8e9
    assert finding.ratio == pytest.approx(1 / (1 + added / (0.01 * layers)))
    assert (finding.where, layers, answer.notes[0]) == ("alexnet, 8 workers", 23, "239 of 241 problems have rows")


def test_no_link_is_added_to_sums_over_a_real_link(fill, put, verdict):
    fill("four-gpus-torch", 0.01, ON_A_GPU, threads=1)
    put("aggregate/cuda.host_parallel", ALEXNET, 0.1, **GPU)
    (finding,) = verdict("four-gpus-torch").findings
    assert finding.ratio == pytest.approx(4 / (1 + 0.1 / (0.01 * (len(finding.rows) - 1))))


def test_a_network_of_a_suite_that_has_several_is_chosen_by_name(fill, put, verdict):
    fill("dense-hardly-gain", 0.01, ON_A_GPU, threads=1)
    for n in (14198784, 145376):
        put("aggregate/cuda.device", f"aggregate/w4n{n}/f32/ef", 1e-9 * n, **GPU)
    (finding,) = verdict("dense-hardly-gain").findings
    assert finding.where.startswith("cifar10 quick against transfer FCN-R, 4 workers: ")
    assert len(finding.rows) == 2 + 11 + 14


def test_model_parallelism_exchanges_outputs_and_the_gradients_of_inputs(fill, put, verdict):
    fill("int8-model-pays-cuda", 0.1, ON_A_GPU, threads=1)
    for kernel, time_s in (("int8", 0.01), ("device", 0.005)):
        put(f"aggregate/cuda.{kernel}", "aggregate/w4n6990272/f32/ef", time_s, **GPU)
    (finding,) = verdict("int8-model-pays-cuda").findings
    n = 1024 * (2048 + 4096 + 1024 + 10 + 2048 + 4096 + 1024) // 2
    compute = 11 * 0.1 / 4
    seconds = [t / 4 * n / 6990272 + 1.5 * 4 * n / 8e9 / by for t, by in ((0.01, EIGHT_BITS), (0.005, 1))]
    eight, full = (4 / (1 + s / compute) for s in seconds)
    assert finding.ratio == pytest.approx(eight / full)


def test_work_for_money_uses_the_price_of_the_same_number_of_virtual_cpus(put, verdict):
    for threads, time_s in ((16, 0.004), (32, 0.003), (64, 0.003)):
        put("gemm/scipy.sgemm", "gemm/m1024n1024k1024/f32/NN", time_s, threads=threads)
    ratios = {n.where.rpartition(" ")[2]: n.ratio for n in verdict("vcpus-16-cheapest").findings}
    assert ratios == {"32": pytest.approx(0.75 * 0.254 / 0.127), "64": pytest.approx(0.75 * 0.509 / 0.127)}


def test_a_file_without_prices_of_virtual_cpus_gives_no_number(put, verdict):
    without = Prices(currency="USD", date="now", device=load_prices(None).device)
    for threads in (16, 64):
        put("gemm/scipy.sgemm", "gemm/m1024n1024k1024/f32/NN", 0.004, threads=threads)
    assert verdict("vcpus-16-cheapest", prices=without).verdict == "not measured"


def test_the_name_of_a_file_selects_all_its_claims():
    assert [claim.id for claim in claims(["aggregation"])] == [claim.id for claim in files()["aggregation"].claim]
    assert {claim.id for claim in claims(["cost", "beta"])} == {"beta", *(c.id for c in files()["cost"].claim)}
    with pytest.raises(UsageError, match="or all of transposition, "):
        claims(["aggregations"])
    assert not files().keys() & {claim.id for claim in catalog().claim}


SMALL = {"cpu": "Some CPU", "cpus_usable": 2, "isas": ["sse", "avx"]}
LARGE = SMALL | {"cpus_usable": 64, "gpu": "Some GPU", "gpus": 4, "isas": ["sse", "avx", "avx2"]}


@pytest.fixture
def judged(store, verdict):
    def of(claim, facts):
        begin(store, machine=facts)
        return verdict(claim)

    return of


@pytest.mark.parametrize(
    ("claim", "facts", "missing"),
    [
        ("gpu-lstm", SMALL, "a GPU; Some CPU has none"),
        ("ranking-peers", LARGE | {"gpus": 2}, "4 GPUs; Some CPU with Some GPU has 2"),
        ("ranking-peers", SMALL | {"gpu": "Some GPU"}, "4 GPUs; Some CPU with Some GPU has 1"),
        ("threads-64", SMALL, "64 threads; Some CPU has 2"),
        ("isa-gain", SMALL, "the instruction sets sse and avx2; Some CPU has sse and avx"),
        ("isa-gain", SMALL | {"isas": []}, "the instruction sets sse and avx2; Some CPU has none"),
    ],
)
def test_a_claim_is_not_testable_if_the_machine_of_the_run_lacks_hardware(judged, claim, facts, missing):
    answer = judged(claim, facts)
    assert (answer.verdict, answer.said) == ("not testable here", (missing,))


@pytest.mark.parametrize("claim", ["gpu-lstm", "ranking-peers", "threads-64", "isa-gain"])
@pytest.mark.parametrize("facts", [LARGE, {}, {"cpu": "of another tool"}], ids=["large", "none", "other"])
def test_a_claim_is_not_measured_if_no_hardware_is_known_to_be_missing(judged, claim, facts):
    answer = judged(claim, facts)
    assert answer.verdict == "not measured"
    assert f"`kernelmark claims --only {claim}`" in answer.said[0]


def test_too_few_threads_are_reported_with_their_gain(judged, put, verdict):
    judged("threads-64", SMALL)
    for threads, time_s in ((1, 4.0), (2, 2.0)):
        put("gemm/scipy.sgemm", "gemm/m1024n1024k1024/f32/NN", time_s, run_id="r2", threads=threads)
    (line,) = verdict("threads-64", ("r1", "r2")).said
    gains = "gemm m1024n1024k1024/NN, 2 threads against 1: 2x"
    assert line.startswith(f"64 threads; Some CPU has 2; gains measured here: {gains}")


@pytest.mark.parametrize(
    ("name", "facts", "missing"),
    [
        ("lstm", SMALL, "a GPU; Some CPU has none"),
        ("threads", SMALL, ""),
        ("threads-mlp", SMALL, "64 threads; Some CPU has 2"),
        ("gpu-sizes", LARGE, ""),
    ],
)
def test_an_experiment_is_for_a_machine_that_can_test_one_of_its_claims(name, facts, missing):
    assert untestable(name, facts) == missing


def test_machines_of_several_runs_count_together():
    hardware = Hardware.of([SMALL, LARGE, {"cpu": "of another tool"}])
    assert hardware == Hardware("Some CPU and Some CPU with Some GPU", 4, 64, ("sse", "avx", "avx2"))


HEAD = 'currency = "EUR"\ndate = 2026-11-21\n'
CPU = '[[device]]\ndevice = "cpu"\nname = "Some CPU"\nper_hour = 1.0\n'
PRICED_GPU = '[[device]]\ndevice = "cuda"\nname = "Some*"\nper_hour = 3.0\n'
BOTH, CPU_WATTS = CPU + PRICED_GPU, CPU + "watts = 150.0\n"
METERED = CPU_WATTS + PRICED_GPU + "watts = 75.0\n"
MONEY, WATTS, OTHER = "price-performance", "performance-per-watt", "preemptible-only"
SIZES = {16: (1.0, 2.0), 1024: (8.0, 1.0)}
NAMES = {"numpy.matmul": "Some CPU", "cublas.sgemm": "Some GPU"}


@pytest.fixture
def write(tmp_path):
    def to(text):
        path = tmp_path / "prices.toml"
        path.write_text(text)
        return path

    return to


@pytest.fixture
def measured(put, store):
    """Return a function that adds rows of a CPU and a GPU; the GPU is slower at 16 and eight times as fast at 1024."""

    def record(names=NAMES, **values):
        for m, times in SIZES.items():
            for time_s, (kernel, name) in zip(times, names.items(), strict=False):
                put(f"gemm/{kernel}", f"gemm/m{m}n{m}k{m}/f32/NN", time_s, device_name=name, **values)
        return store

    return record


@pytest.fixture
def priced(measured, registry, write):
    def of(claim, devices, **values):
        prices = load_prices(write(HEAD + devices))
        (answer,) = claims_rows(measured(**values), ["r1"], registry, prices, only=(claim,))
        return answer

    return of


def test_the_example_of_prices_has_the_figures_of_the_founding_texts():
    prices = load_prices(None)
    assert [(d.device, d.per_hour) for d in prices.device] == [("cuda", 0.745), ("cpu", 0.509)]
    assert prices.currency == "USD"
    text = PRICES.read_text()
    assert all(figure in text for figure in ("3.725", "2.545", "75.0"))


@pytest.mark.parametrize(
    ("claim", "devices", "values", "ratios", "answers", "note"),
    [
        (MONEY, BOTH, {}, [1 / 6, 8 / 3], "no yes", "Some GPU: 3 EUR an hour (2026-11-21)"),
        (WATTS, BOTH + "watts = 75.0\n", {"energy_j": 5.0}, [1.0, 1.0], "tie tie", ""),  # energy overrides watts
        (WATTS, METERED, {"time_s_ci95_low": None}, [1.0, 16.0], "", "GPU: 3 EUR an hour (2026-11-21), 75 W declared"),
        # The CPU's price on other terms is compared with the GPU's usual price.
        (OTHER, CPU + "otherwise_per_hour = 6.0\n" + PRICED_GPU, {}, [1.0, 16.0], "", ""),
    ],
)
def test_devices_are_compared_by_work_per_price_or_per_energy(priced, claim, devices, values, ratios, answers, note):
    answer = priced(claim, devices, **values)
    assert answer.verdict == "depends"
    assert [(f.where, f.ratio) for f in answer.findings] == [
        (where, pytest.approx(ratio)) for where, ratio in zip(("16", "1024"), ratios, strict=True)
    ]
    assert answers in " ".join(f.answer for f in answer.findings)
    assert note in "\n".join(answer.notes)


@pytest.mark.parametrize(
    ("claim", "devices", "values", "verdict", "missing"),
    [
        (MONEY, CPU, {}, "not measured", "a price: the prices file lacks it for at least one of Some CPU, Some GPU"),
        (WATTS, BOTH, {}, "not testable here", "energy: no sensor was read on Some CPU, Some GPU"),
        (WATTS, CPU_WATTS + PRICED_GPU, {}, "not testable here", "energy: no sensor was read on Some GPU, and"),
        (WATTS, BOTH, {"power_w": 100.0}, "not measured", "` measures them on a machine with a GPU"),
        (OTHER, BOTH, {}, "not measured", "a price on other terms (otherwise_per_hour): the prices file lacks it"),
    ],
)
def test_an_unknown_price_or_energy_is_reported_as_missing(priced, claim, devices, values, verdict, missing):
    answer = priced(claim, devices, **values)
    assert (answer.verdict, missing in answer.said[0]) == (verdict, True)


def test_without_a_gpu_rows_are_missing_and_not_a_price(priced):
    answer = priced(MONEY, BOTH, names={"numpy.matmul": "Some CPU"})
    assert answer.said[0].startswith("some rows of the experiment 'gpu-sizes'")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("currency = ", "is not TOML: "),
        ("\xff", "is not TOML: "),
        (CPU, "missing required field `currency`"),
        (HEAD + "device = []\n", "has no [[device]] table"),
        (HEAD + CPU.replace("per_hour = 1.0", ""), "missing required field `per_hour` - at `$.device[0]`"),
        (HEAD + CPU.replace("1.0", "0"), "per_hour is 0.0, expected a finite number above 0"),
        (HEAD + CPU + "otherwise_per_hour = -1.0\n", "otherwise_per_hour is -1.0, expected a finite number above 0"),
        (HEAD + CPU + "[[vcpus]]\ncount = 16\nper_hour = 0.0\n", "per_hour is 0.0, expected a finite number above 0"),
        (HEAD + CPU.replace("1.0", "nan"), "per_hour is nan, expected a finite number above 0"),
        (HEAD + CPU.replace("1.0", '"one"'), "Expected `float`, got `str`"),
        (HEAD + CPU.replace('"cpu"', '"tpu"'), "Invalid enum value 'tpu'"),
        (HEAD + CPU + "price = 1\n", "unknown field `price`"),
        (HEAD.replace("2026-11-21", "3") + CPU, "date is 3, expected a date"),
    ],
)
def test_an_invalid_file_of_prices_is_refused_in_one_line(write, complaint, text, reason):
    path = write("")
    path.write_bytes(text.encode("latin-1"))
    message = complaint(lambda: load_prices(path))
    assert message.startswith(f"{path}: ")
    assert reason in message


def test_prices_of_devices_without_rows_are_refused(measured, write, complaint):
    path, store = write(HEAD + CPU.replace("Some CPU", "Other")), measured()
    line = complaint(lambda: check_known(load_prices(path), path, store, ["r1"]))
    expected = "expected one for 'Some CPU' (cpu) or 'Some GPU' (cuda)"
    assert line.startswith(f"{path}: has prices for 'Other' (cpu), {expected}")
    check_known(load_prices(write(HEAD + PRICED_GPU)), path, store, ["r1"])
