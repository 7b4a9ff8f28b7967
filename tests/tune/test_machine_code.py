"""Machine code: its loops, instructions and shares of multiply-adds, and the bounds from it and the counts."""

import re
from collections.abc import Callable
from itertools import product

import msgspec
import pytest

from kernelmark.bench.measure.compile import compile_cubin
from kernelmark.bench.measure.occupancy import typical
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.tune.profile import machine, sass
from kernelmark.bench.tune.profile.counted import Counts, LineCounts
from support.tools import needed

REGISTRY = discover()
CONV = "conv/n32c256h56w56k256r3s3pad1/f32"
FOUNDING = "gemm/m1024n2048k26752/f32"


@pytest.fixture(scope="module")
def disassembler(cuda_compiler: str) -> None:
    """Skip the test if there is no nvdisasm, with the install command; in CI, fail it."""
    try:
        sass.nvdisasm()
    except Unsupported as error:
        needed(str(error))


def listing(*lines: str) -> list[sass.Instruction]:
    """Return the instructions in lines of a predicate (optional), an opcode and operands."""
    parts = [re.findall(r"^(@\S+)? ?(\S+) ?(.*)$", line)[0] for line in lines]
    return [sass.Instruction(16 * i, name, used, predicate, 1, 0) for i, (predicate, name, used) in enumerate(parts)]


def of(name: str, problem: str, arch: str = "sm_90a") -> sass.Sass:
    kernel, parsed, device = REGISTRY.named(name), REGISTRY.problem(problem), typical(arch)
    return sass.analyse(kernel, parsed, kernel.tile_for(parsed, device), arch, device)


FFMA = "FFMA R0,R1,R2,R0"
MAIN_LOOPS = {
    "has the most multiply-adds": ([FFMA, "@P0 BRA 0x0", FFMA, FFMA, "@P0 BRA 0x20"], "FFMA FFMA BRA"),
    "contains no other loop that multiplies": ([FFMA, FFMA, "@P0 BRA 0x10", "@P1 BRA 0x0"], "FFMA BRA"),
    "may contain a loop that only copies": (
        ["HMMA.16816.F32 R4,R1,R2,R4", "LDG.E R4,[R2]", "@P0 BRA 0x10", "@P1 BRA 0x0"],
        "HMMA.16816.F32 LDG.E BRA BRA",
    ),
    "has the most loads and stores if no loop multiplies": (
        ["IADD3 R0,R0,R1,RZ", "@P0 BRA 0x0", "LDG.E R4,[R2]", "STG.E [R2],R4", "@P0 BRA 0x20"],
        "LDG.E STG.E BRA",
    ),
    "is absent without a loop": ([FFMA], ""),
}


@pytest.mark.parametrize(("code", "expected"), MAIN_LOOPS.values(), ids=MAIN_LOOPS)
def test_the_main_loop(code: list[str], expected: str) -> None:
    assert [instruction.opcode for instruction in sass.main_loop(listing(*code, "EXIT"))] == expected.split()


def test_code_after_the_end_that_jumps_into_a_loop_belongs_to_it() -> None:
    lines = (FFMA, "@P2 BRA 0x50", "NOP", "@P0 BRA 0x0", "EXIT", "YIELD", "BRA 0x20")
    assert [i.address for i in sass.main_loop(listing(*lines))] == [0, 0x10, 0x20, 0x30, 0x50, 0x60]


@pytest.mark.parametrize(
    ("opcode", "expected", "bits"),
    [
        ("LDS.128", "LDS", 128),
        ("LDS.U.64", "LDS", 64),
        ("LDS", "LDS", 32),
        ("LDSM.16.M88.4", "LDS", 128),
        ("LDSM.16.MT88.2", "LDS", 64),
        ("LDG.E.U16", "LDG", 16),
        ("LDGSTS.E.BYPASS.LTC128B.128", "LDGSTS", 128),
        ("LDGSTS.E", "LDGSTS", 32),
        ("STS.U8", "STS", 8),
        ("STG.E.64", "STG", 64),
    ],
)
def test_moves_have_a_kind_and_a_width(opcode: str, expected: str, bits: int) -> None:
    (instruction,) = listing(f"{opcode} R0,[R2]")
    assert (sass.kind(instruction), sass.width(instruction)) == (expected, bits)


def test_a_share_is_of_all_instructions() -> None:
    code = sass.counted(listing("FFMA R0,R1,R2,R0", "FFMA R0,R1,R2,R0", "LDS.128 R4,[R2]", "BAR.SYNC 0x0"))
    assert (code.instructions, code.useful, code.useful_share) == (4, 2, 0.5)
    assert code.mix == {"FFMA": 2, "LDS": 1, "other": 1}
    assert code.widths == {"LDS 128": 1}


COPY = "LDGSTS.E [R3],desc[UR8][R72.64],P6"


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ([COPY] * 3 + [FFMA] * 9, 1.0),
        ([FFMA] * 9 + [COPY] * 3, 1.0),
        ([COPY, FFMA, FFMA, FFMA] * 3, 1 / 3),
        ([COPY, FFMA, COPY, FFMA, FFMA, FFMA, FFMA, FFMA], 0.5),
        ([COPY, FFMA, FFMA, FFMA, FFMA, FFMA, FFMA, COPY], 0.5),  # no quarter reaches beyond the end
        ([FFMA, COPY], 1.0),
        ([FFMA, "LDG.E R4,desc[UR8][R72.64]", "@!PT LDS RZ,[RZ]"], None),
    ],
)
def test_clumped_is_the_largest_share_of_copies_in_a_quarter_loop(loop: list[str], expected: float | None) -> None:
    assert sass.clumped(listing(*loop)) == expected


LOAD = "LDG.E.128.CONSTANT R40,desc[UR12][R88.64]"


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ([LOAD, FFMA, "UIMAD UR40,UR5,UR41,UR6", FFMA, "STS.128 [R79+UR9],R40", FFMA], 2),
        ([FFMA, FFMA, "STS.128 [R79+UR9],R40", FFMA, FFMA, LOAD, FFMA], 3),  # use in the next trip
        ([LOAD, FFMA, FFMA, "STS.U8 [R79],R43", FFMA], 2),  # the last of four registers
        ([LOAD, FFMA, "LDG.E R50,desc[UR12][R88.64]", FFMA, "FADD R3,R50,R50", FFMA, "STS [R79],R41"], 1),
        (["LDG.E R41,desc[UR12][R88.64]", FFMA, "STS.64 [R79],R40", FFMA, FFMA], 1),
        (["LDG.E R41,desc[UR12][R88.64]", FFMA, "LDG.E.U8 R3,desc[UR12][R40.64]", FFMA, FFMA], 1),
        ([LOAD, FFMA, "IMAD.WIDE.U32 R30,R39,0x20,R30", FFMA, "IMAD.WIDE.U32 R30,R31,0x20,R39", FFMA], 2),
        ([LOAD, FFMA, "IADD3 R86,P3,R86,UR11,RZ", FFMA, "IMAD.WIDE.U32 R86,P0,R3,R4,R39", FFMA], 2),
        ([LOAD, "NOP", "DADD R4,R6,R39", "NOP"], 1),
        ([LOAD, "NOP", "NOP", "HMMA.16816.F32 R4,R38,R2,R4", "NOP"], 2),
        ([LOAD, FFMA, FFMA], 2),  # used only after the loop: until the next load
        ([COPY, FFMA], None),
    ],
)
def test_cover_counts_instructions_from_a_load_to_its_first_use(loop: list[str], expected: int | None) -> None:
    assert sass.cover(listing(*loop), resident_warps=4) == expected


@pytest.mark.parametrize(("warps", "expected"), [(1, 2), (4, 2), (9, 4), (16, 8)])
def test_cover_is_of_all_warps_of_a_scheduler(warps: int, expected: int) -> None:
    assert sass.cover(listing(LOAD, FFMA, FFMA, "STS.128 [R79],R40"), warps) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("FFMA R4,R0,R2,R4",), 1),
        (("FFMA R5,R1,-R3,R5",), 1),
        (("FFMA R4,R0,R3,R4",), 0),
        (("FFMA R4,R0,R0,R4",), 0),  # two registers
        (("FFMA R4,R0,c[0x0][0x160],R4",), 0),
        (("FFMA R4,R0,RZ,R4",), 0),
        (("FFMA R4,R0.reuse,R2,R4", "FFMA R6,R0,R2,R6"), 1),
        (("FFMA R4,R0.reuse,R2,R4", "FFMA R6,R2,R0,R6"), 2),  # kept, but for another operand
        (("FFMA R4,R0.reuse,R2,R4", "LDS R8,[R9]", "FFMA R6,R0,R2,R6"), 2),
        (("LDS R8,[R9]",), None),
    ],
)
def test_ffma_that_read_three_registers_of_one_bank_are_counted_unless_one_is_kept(lines, expected) -> None:
    assert sass.one_bank(listing(*lines)) == expected


SOURCE = """
extern "C" __global__ void known(const float *__restrict__ a, float *b, int n) {
  __shared__ float smem[1024];
  for (int i = threadIdx.x; i < 1024; i += 256) smem[i] = a[i];
  __syncthreads();
  float sums[8] = {};
#pragma unroll 1
  for (int step = 0; step < n; ++step)
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] += smem[(step * 8 + i) % 1024] * smem[(step + i * 32) % 1024];
  for (int i = 0; i < 8; ++i) b[i * 256 + threadIdx.x] = sums[i];
}
"""


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_75", marks=pytest.mark.long), "sm_90a"])
def test_a_loop_of_known_work_has_this_work_on_every_architecture(tmp_path, arch: str) -> None:
    file = tmp_path / "known.cu"
    file.write_text(SOURCE)
    cubin = compile_cubin(str(file), ("known",), arch)
    listed = sass.instructions(cubin.code, cubin.symbols["known"])
    assert listed[-1].name != "NOP"
    loop = sass.counted(sass.main_loop(listed))
    assert loop.useful == 8
    assert sum(count for name, count in loop.widths.items() if name.startswith("LDS")) >= 8
    assert all(0 <= instruction.stall <= 15 for instruction in listed)
    assert loop.stall_cycles >= loop.instructions - 1
    assert loop.waits > 0  # for shared memory


#: Kernels on problems, with the least share of multiply-adds in the main loop on Hopper, whether factors and sums lie
#: in different banks, and whether the test is long.
LOOPS = [
    ("gemm/cuda.async", "gemm/m4096n4096k4096/f32/NN", 0.895, False, False),
    ("gemm/cuda.async", "gemm/m4096n4096k4096/f32/NT", 0.87, False, False),
]
for _name in ("gemm/cuda.streamk", "gemm/cuda.splitk"):
    LOOPS += [(f"{_name}@BN=256", f"{FOUNDING}/NT", 0.87, False, "splitk" in _name)]
    for _width, _layout, _least in ((128, "NT", 0.805), (256, "NN", 0.895), (128, "NN", 0.83)):
        LOOPS += [(f"{_name}@BN={_width}", f"{FOUNDING}/{_layout}", _least, False, True)]
EVERY = ["/".join(pair) for pair in product(("nchw", "nhwc"), ("fprop", "dgrad", "wgrad"))]
for _name, _variant, *_facts in (
    ("implicit", "nchw/fprop", 0.87, False, False),
    ("implicit@BM=128,BN=128", "nchw/fprop", 0.82, True, False),
    ("winograd4_fused", "nchw/fprop", 0.88, True, False),
    ("winograd@BK=64", "nchw/fprop", 0, True, False),
    ("fft_tiled", "nchw/fprop", 0.86, False, True),
    ("implicit", "nchw/dgrad", 0.87, False, True),
    ("implicit", "nchw/wgrad", 0.865, False, True),
    ("im2col", "nchw/fprop", 0.82, False, True),
    ("winograd4", "nchw/fprop", 0.865, True, True),
    ("winograd@BK=32", "nchw/fprop", 0, True, True),
    *((f"winograd@BK={k}", other, 0, True, True) for k in (32, 64) for other in ("nhwc/fprop", "nchw/dgrad")),
    *(("implicit@BN=256", every, 0, True, True) for every in EVERY),
):
    LOOPS += [(f"conv/cuda.{_name}", f"{CONV}/{_variant}", *_facts)]


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize(
    ("name", "problem", "least", "is_banked"),
    [pytest.param(*words, marks=pytest.mark.long if is_long else ()) for *words, is_long in LOOPS],
)
def test_the_main_loop_on_hopper_keeps_its_share_of_multiply_adds_and_its_banks(
    name, problem, least, is_banked
) -> None:
    main = of(name, problem).main
    assert main.loop.useful_share >= least
    assert main.spill_bytes == 0
    assert main.one_bank == 0 or not is_banked


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize(
    ("name", "layout", "clumped", "cover"),
    [
        ("gemm/cuda.async", "NN", (1.0, 1.0), None),
        ("gemm/cuda.splitk", "NT", (0.33, 0.5), None),  # in thirds
        ("gemm/cuda.warptile", "TN", None, (150, 350)),
        pytest.param("gemm/cuda.warptile", "NT", None, (800, 2000), marks=pytest.mark.long),
    ],
)
def test_copies_are_clumped_and_loads_covered_as_known_on_hopper(name, layout, clumped, cover) -> None:
    main = of(name, f"gemm/m4096n4096k4096/f32/{layout}").main
    shown = [name for name, *_ in machine.mix(main)]
    for name, estimate, expected in (("copies clumped", main.clumped, clumped), ("cover", main.cover, cover)):
        assert (estimate is not None) == (expected is not None) == (name in shown)
        assert estimate is None or expected[0] <= estimate <= expected[1]


@pytest.mark.usefixtures("disassembler")
def test_the_widest_tile_of_a_divided_product_has_a_multiprocessor_to_itself() -> None:
    main = of("gemm/cuda.streamk", f"{FOUNDING}/NT").main
    assert (main.blocks, main.blocks_per_sm, main.threads) == (132, 1, 256)
    assert main.registers <= 255


#: Kernels, each with the instruction that does its work; the short run tests the first three.
ON_TENSOR_CORES = [
    ("mma", "bf16/NT", "HMMA.16816.F32.BF16", "sm_90a"),
    ("mma_f64", "f64/NN", "DMMA.884", "sm_80"),
    ("wgmma_fp8", "e4m3.bf16/NT", "QGMMA.64x128x32.F32.E4M3.E4M3", "sm_90a"),
    ("mma_int8", "s8.s32/NT", "IMMA.16832.S8.S8", "sm_90a"),
    ("mma_f64", "f64/TT", "DMMA.884", "sm_80"),
    *(("mma_f64", f"f64/{layout}", "DMMA.16x8x4", "sm_90a") for layout in ("NT", "TN")),
    ("wgmma_fp8_blocks", "e4m3.bf16/NT/scale-blocks", "QGMMA.64x128x32.F32.E4M3.E4M3", "sm_90a"),
    ("wgmma_int8", "s8.s32/NT", "IGMMA.64x256x32.S8.S8", "sm_90a"),
    ("wgmma_persistent", "bf16/NT", "HGMMA.64x256x16.F32.BF16", "sm_90a"),  # although its loop over tiles has more FFMA
]


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize(
    ("name", "variant", "opcode", "arch"),
    [pytest.param(*row, marks=pytest.mark.long if i > 2 else ()) for i, row in enumerate(ON_TENSOR_CORES)],
)
def test_instructions_of_tensor_cores_are_the_useful_work_of_the_main_loop(name, variant, opcode, arch) -> None:
    loop = of(f"gemm/cuda.{name}", f"gemm/m4096n4096k4096/{variant}", arch).main.loop
    assert loop.products == {opcode: {"DMMA.884": 128, "DMMA.16x8x4": 64}.get(opcode, loop.useful)}
    assert loop.multiply_adds == loop.useful * sass.lanes(opcode)


def test_a_missing_nvdisasm_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass.shutil, "which", lambda *_, **__: None)
    with pytest.raises(Unsupported, match=r"\A.*pip install.*\Z"):
        sass.nvdisasm.__wrapped__()


@pytest.mark.usefixtures("disassembler")
def test_a_file_that_is_no_cubin_is_refused_in_one_line(complaint: Callable[..., str]) -> None:
    assert "cannot read the cubin" in complaint(lambda: sass._functions(b"no cubin"))


WARPS, TRIPS = 8, 100
COUNTED_LOOP = sass.Code(100, {"FFMA": 80, "LDS": 4, "LDGSTS": 2}, {"LDS 128": 4, "LDGSTS 32": 2}, {"FFMA": 80}, 100, 3)
ALL = sass.Code(200, {"FFMA": 80, "LDS": 8, "LDGSTS": 6}, {"LDS 128": 8, "LDGSTS 32": 6}, {"FFMA": 80}, 200, 5)
FUNCTION = sass.LaunchCode("k", 1, 32 * WARPS, 0, 32, 0, 1, ALL, COUNTED_LOOP, (0, 16))


def sass_of(*functions: sass.LaunchCode) -> sass.Sass:
    return sass.Sass("gemm/cuda.k", "p", "", "sm_90a", "compiler", "nvdisasm", functions)


def counts(trips: int = TRIPS, **others: object) -> Counts:
    by_loop = {"fma": 80 * trips * WARPS, "loads": {"shared 16": 4 * trips * WARPS}}
    total = LineCounts("", 0, **{**by_loop, "copies": {"copy 4": 2 * trips * WARPS}, **others})  # type: ignore[arg-type]
    return Counts("gemm/cuda.k", "p", "", "sm_90a", (), (), total, 0, 0, None, None, (), 0, ())


@pytest.mark.parametrize("outside", [0, -8, 12])
def test_counts_agree_with_the_loop_times_its_trips_except_for_a_few_accesses_outside(outside: int) -> None:
    loads = {"shared 16": (4 * TRIPS + outside) * WARPS}
    agreement = machine.agreement(counts(loads=loads), sass_of(FUNCTION))
    assert (agreement.trips, agreement.differing, agreement.reason) == (TRIPS * WARPS, (), "")


OTHER_WIDTH = ["loads of 8 bytes counted, the machine code has 16"]


@pytest.mark.parametrize(
    ("counted", "each", "number", "unbounded"),
    [
        ({"loads": {"shared 16": 5 * TRIPS * WARPS}}, "5.00 LDS of 16", 4, []),
        ({"loads": {"shared 8": 8 * TRIPS * WARPS}}, "8.00 LDS of 8", 0, OTHER_WIDTH),
        ({"copies": {}}, "0.00 LDGSTS of 4", 2, []),
    ],
)
def test_counts_with_another_number_or_width_in_the_loop_are_source_level(counted, each, number, unbounded) -> None:
    agreement = machine.agreement(counts(**counted), sass_of(FUNCTION))
    named = f"{each} bytes counted per trip, the machine code has {number}"
    assert named in agreement.differing
    assert agreement.words.startswith("Source level: in the main loop")
    in_excess = [named] if "LDS" in named else []
    assert list(machine.unlike(counts(**counted), sass_of(FUNCTION), agreement)) == in_excess + unbounded


def test_few_trips_two_functions_and_loops_without_ffma_are_not_compared() -> None:
    without = msgspec.structs.replace(FUNCTION, loop=None)
    for counted, functions, words in (
        (counts(15), [FUNCTION], "a warp makes 15.0 trips"),
        (counts(), [FUNCTION, FUNCTION], "2 functions are launched"),
        (counts(), [without], "no main loop of FFMA"),
        (counts(fma=None), [FUNCTION], "no main loop of FFMA"),
    ):
        assert words in machine.agreement(counted, sass_of(*functions)).reason


DEVICE = machine.Published({"bf16.f32": 1e12}, 64, "two", 90, 2, 1e9, 128, 1e9, "a test")
LOOP = sass.Code(100, {"FFMA": 80, "LDS": 20}, {"LDS 128": 20}, {"FFMA": 80}, 100, 3)


def planned(loop: sass.Code | None = LOOP, blocks: int = 4, resident: int = 1) -> sass.Sass:
    return sass_of(sass.LaunchCode("k", blocks, 256, 0, 32, 0, resident, loop or LOOP, loop, (0, 16) if loop else None))


def test_each_limit_is_formed_as_if_the_others_were_infinite() -> None:
    work = machine.Work(multiply_adds=2_560_000, wavefronts=4_000, l2_bytes=6_400_000, dram_bytes=3_000_000)
    bounds = machine.bounds(work, planned(), DEVICE)
    assert bounds.times == pytest.approx(
        {
            "issue slots": 2_560_000 / 32 / 0.8 / 4 / 2 / 1e9,
            "FFMA": 2_560_000 / 128 / 2 / 1e9,
            "shared memory": 4_000 / 2 / 1e9,
            "L2": 6_400_000 / 64 / 1e9,
            "DRAM": 3e-3,
        }
    )
    assert (bounds.limiting, bounds.time_s) == ("DRAM", 3e-3)


@pytest.mark.parametrize(("blocks", "waves", "tail"), [(4, 2, 1), (3, 1.5, 4 / 3), (1, 0.5, 2)])
def test_blocks_that_do_not_fill_the_last_wave_lengthen_the_work_of_a_multiprocessor(blocks, waves, tail) -> None:
    bounds = machine.bounds(machine.Work(2_560_000, dram_bytes=1), planned(blocks=blocks), DEVICE)
    assert (bounds.waves, bounds.tail) == (waves, pytest.approx(tail))
    assert bounds.times == pytest.approx({**bounds.times, "FFMA": 1e-5 * tail, "DRAM": 1e-9})


def test_the_bound_of_tensor_cores_is_that_of_the_type_in_the_loop() -> None:
    loop = sass.Code(10, {"HMMA": 5}, {}, {"HMMA.16816.F32.BF16": 5}, 10, 0)
    bounds = machine.bounds(machine.Work(1_000_000), planned(loop), DEVICE)
    assert bounds.times["tensor cores"] == pytest.approx(2e-6)
    assert "FFMA" not in bounds.times


def test_limits_that_are_not_published_and_work_that_is_not_counted_give_no_bound() -> None:
    b200 = machine.published("b200", "sm_100")
    assert machine.bounds(machine.Work(1_000_000), planned(), b200).times == {}
    in_memory = machine.Work(1_000_000, dram_bytes=8)
    assert machine.bounds(in_memory, planned(), b200).times == pytest.approx({"DRAM": 1e-12})
    assert machine.bounds(machine.Work(0), planned(None), DEVICE) == machine.TimeBound("two", {}, 2.0, 1.0)
    assert machine.TimeBound("two", {}, None, None).limiting is None


@pytest.mark.parametrize(
    ("opcode", "lanes", "types"),
    [
        ("FFMA", 32, None),
        ("FFMA2", 64, None),
        ("HMMA.16816.F32", 2048, "f16.f32"),
        ("HMMA.16816.F16", 2048, "f16.f16"),
        ("HMMA.16816.F32.BF16", 2048, "bf16.f32"),
        ("HMMA.1688.F32.TF32", 1024, "tf32.f32"),
        ("HGMMA.64x256x16.F32.BF16", 65536, "bf16.f32"),
        ("QGMMA.64x256x32.F32.E4M3.E5M2", 131072, "fp8.f32"),
        ("IGMMA.64x256x32.S8.S8", 131072, "s8.s32"),
        ("IMMA.16832.S8.S8", 4096, "s8.s32"),
        ("DMMA.884", 256, "f64.f64"),
        ("DMMA.16x8x4", 512, "f64.f64"),
    ],
)
def test_an_opcode_has_the_multiply_adds_of_a_warp_and_the_types_of_tensor_cores(opcode, lanes, types) -> None:
    assert sass.lanes(opcode) == lanes
    assert machine.tensor_type(sass.Code(1, {}, {}, {opcode: 1}, 1, 0)) == types


def test_published_peaks_of_fp32_follow_from_multiprocessors_and_clock() -> None:
    peaks = {"h100-sxm": 66.9, "h100-pcie": 51.2, "h200": 66.9, "a100": 19.5, "rtx4090": 82.6, "l40s": 91.6}
    for name, device in machine.DEVICES.items():
        assert device.source
        assert (device.multiprocessors is None) == (device.clock_hz is None) == (name not in peaks)
        if device.multiprocessors and device.clock_hz:
            tflop_per_s = 2 * device.multiply_adds * device.multiprocessors * device.clock_hz / 1e12
            assert tflop_per_s == pytest.approx(peaks[name], abs=0.06)


def test_the_table_begins_with_the_limiting_bound() -> None:
    shown = machine.render(machine.TimeBound("H100 SXM5", {"FFMA": 1e-3, "DRAM": 2e-3}, 1.0, 1.0)).splitlines()
    assert "least time on H100 SXM5" in shown[0]
    assert [line.split()[0] for line in shown[2:]] == ["DRAM", "FFMA"]
    assert shown[2].rstrip().endswith("limiting")
