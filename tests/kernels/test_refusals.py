"""Every reason for which a kernel refuses a problem, and the nearest problem that it supports."""

from itertools import product

import pytest

from support.kernels import CUDA, LAYOUTS, REGISTRY, WGMMA, WGMMA_WORDS, refusal

GEMM, CONV, TRANSPOSE, FFT = "gemm/cuda.", "conv/cuda.", "transpose/cuda.", "fft/cuda.small"
FUSED, TILED, DEPTHWISE = TRANSPOSE + "c2r_fused", CONV + "direct_tiled", CONV + "depthwise"
LAYER = "n32c64h56w56k128r3s3pad1"
LADDER = ("blocktile1d", "blocktile2d", "vectorised", "warptile", "async", "splitk")
LADDER += ("wmma", "mma", "mma_tf32", "mma_3xtf32", "mma_f64")
NOT_BY_TMA = ("wgmma", "wgmma_splitk", "wgmma_3xtf32")
#: Kernel, problem, and a part of the reason; none where the kernel takes the problem.
REFUSED = [
    *[
        (GEMM + name, f"gemm/{sizes}/{CUDA[GEMM + name].domain['dtype'][0]}/NN{batch}", f"blocks along {axis}")
        for name in LADDER
        for sizes, batch, axis in (("m4194241n1k1", "", "y"), ("m1n1k1", "/batch65536", "z"))
    ],
    (GEMM + "naive", "gemm/m1n524281k1/f32/NN", "n is "),
    (GEMM + "coalesced", "gemm/m524281n1k1/f32/NN", "m is "),
    (GEMM + "tiled", "gemm/m1n1k1/f32/NN/batch65536", "batch is "),
    (GEMM + "streamk", f"gemm/m1n1k{2**31}/f32/NN", "sizes are C ints"),
    (GEMM + "skinny", "gemm/m17n64k64/f16/NT", "expected at most 16"),
    *[
        (GEMM + "batched", f"gemm/{sizes}/f32/NN", "expected at most 128")
        for sizes in ("m129n1k1", "m1n129k1", "m1n1k129")
    ],
    *[
        (GEMM + "async", f"gemm/m4n4k4/f32/TN/epi-{epilogue}", f"no {epilogue} path; it has plain")
        for epilogue in ("bias-relu", "sigmoid", "update")
    ],
    *[
        ("gemm/cupy.matmul", f"gemm/m5n7k4/f32/NN/{word}", "path; it has ")
        for word in ("alpha2", "beta1", "epi-sigmoid", "groups3-equal")
    ],
    (GEMM + "async_fused", "gemm/m8n8k8/f32/NN/epi-update", "the layout is NN, expected TN with epi-update"),
    *[
        (GEMM + name, f"gemm/{sizes}/{dtype}/NT{padding}{WGMMA_WORDS.get(name, '')}", f"rows of {operand} begin every ")
        for name, dtype in WGMMA.items()
        for sizes, padding, operand in (
            *(("m8n8k16", "/lda+1", "a"), ("m8n8k17", "", "a")),
            *(("m8n8k16", "/ldb+2", "b"), ("m8n7k16", "", "c")),
        )
    ],
    *[
        (GEMM + name, f"gemm/m33n{n}k31/{dtype}/NT/lda+1/ldb+1/ldc+{ldc}{WGMMA_WORDS.get(name, '')}", reason)
        for name, dtype in WGMMA.items()
        for n, ldc, reason in ((24, 8, ""), (29, 3, "" if name in NOT_BY_TMA else "a row of c has "))
    ],
    (GEMM + "wgmma", "gemm/m8n4k8/bf16.f32/NT", ""),
    (GEMM + "wgmma", "gemm/m8n4k8/bf16/NT", "rows of c"),
    *[
        (GEMM + name, f"gemm/m8n8k16/{WGMMA[name]}/{layout}", f"has no {layout} path")
        for name in ("wgmma_tf32", "wgmma_3xtf32", "wgmma_fp8", "wgmma_int8")
        for layout in ("NN", "TT")
    ],
    *[
        (f"{GEMM}wgmma_tf32_{name}", f"gemm/m8n8k8/f32/{layout}", "" if layout in taken else "path")
        for name, taken in (("registers", ("NN", "TT")), ("turned", ("TN",)))
        for layout in LAYOUTS
    ],
    (GEMM + "wgmma_tf32_registers", "gemm/m8n8k7/f32/NN", "rows of a begin every "),
    (GEMM + "wgmma_tf32_registers", "gemm/m9n8k8/f32/TT", "rows of a begin every "),
    (GEMM + "wgmma_tf32_registers", "gemm/m8n7k8/f32/NN/ldb+1/ldc+1", "a row of c has "),
    (GEMM + "wgmma_tf32_turned", "gemm/m8n8k7/f32/TN", ""),
    (GEMM + "wgmma_tf32_turned", "gemm/m9n8k8/f32/TN", "rows of a begin every "),
    (GEMM + "wgmma_tf32_turned", "gemm/m8n9k8/f32/TN/ldc+3", "rows of b begin every "),
    (GEMM + "wgmma_tf32_turned", "gemm/m8n7k8/f32/TN/ldb+1/ldc+1", "a row of c has "),
    (GEMM + "wgmma", f"gemm/m{65535 * 128 + 1}n8k8/bf16/NT", "blocks along y"),
    (GEMM + "wgmma", "gemm/m8n8k8/bf16/NT/batch65536", "blocks along z"),
    (GEMM + "wgmma_persistent", "gemm/m8388608n8388608k8/bf16/NT", "tiles, expected at most"),
    (GEMM + "wgmma_grouped", "gemm/m1008n136k72/bf16/NT/groups257-equal", "257 groups, expected at most 256"),
    *[
        (kernel, f"gemm/m8n8k8/f32/{tail}{words}", reason)
        for kernel, tail in (
            *[(f"gemm/cublas.{name}", "NT") for name in ("tnn_geam", "tnn", "inplace")],
            *[(f"gemm/{provider}.two_step", "TN/beta1") for provider in ("cublas", "scipy")],
        )
        for words, reason in (
            *(("", ""), ("/batch2", "use batch 1"), ("/lda+1", "without padding")),
            *(("/ldb+4", "without padding"), ("/ldc+1", "without padding")),
        )
    ],
    *[("gemm/scipy.two_step", f"gemm/m8n8k8/f32/{layout}/beta1", f"no {layout} path") for layout in ("NN", "NT", "TT")],
    *[("gemm/scipy.two_step", f"gemm/m8n8k8/f32/TN{beta}", "path; it has 1.0") for beta in ("", "/beta2")],
    *[
        ("gemm/cublaslt.heuristic", f"gemm/{sizes}/e4m3.f32/NT{words}/scale-blocks", reason)
        for sizes, words, reason in (
            ("m6n8k16", "", "m is 6, expected a multiple of 4: cuBLASLt reads four scales at a time"),
            ("m8n6k16", "", "n is 6, expected a multiple of 4: cuBLASLt reads four scales at a time"),
            ("m8n8k16", "/batch2", "expected 1: cuBLASLt does not define where the scales of a batch lie"),
        )
    ],
    *[
        (
            "gemm/cublaslt.heuristic",
            f"gemm/m16n16k16/{dtype}/{layout}",
            f"layout is {layout}, expected NT: cuBLASLt needs {kind} operands to be stored along k",
        )
        for (dtype, kind), layout in product((("e4m3.bf16", "FP8"), ("s8.s32", "INT8")), ("NN", "TN", "TT"))
    ],
    *[
        ("gemm/torch.int_mm", f"gemm/{problem}", reason)
        for problem, reason in (
            ("m3n4k5/s8.s32/NT/batch2", "has no batched path; use batch 1"),
            ("m3n4k5/s8.s32/NT/ldc+1", "ldc is padded by 1, expected 0: C must be contiguous"),
            ("m1n4k5/s8.s32/TN", "m is 1, expected more for a transposed operand: PyTorch 2.13 left C unwritten"),
            ("m4n1k5/s8.s32/NT", "n is 1, expected more for a transposed operand: PyTorch 2.13 left C unwritten"),
            ("m1n1k5/s8.s32/NN", ""),
        )
    ],
    (TRANSPOSE + "naive", "transpose/m524281n1/f32/out", "m is "),
    *[
        (TRANSPOSE + name, f"transpose/m{m}n{2**31}/f16/{place}", f"n is {2**31}, expected at most {2**31 - 1}")
        for names, m, place in (
            (("naive", "unpadded", "tiled", "vectorised", "batched"), 1, "out"),
            (("tma",), 8, "out"),
            (("c2r",), 65535, "in"),
        )
        for name in names
    ],
    *[("transpose/numba.tiles", f"transpose/{sizes}/f32/in", "need not move") for sizes in ("m1n9", "m9n1")],
    (TRANSPOSE + "tiled_inplace", "transpose/m5n7/f32/in", "transposes square matrices only; m is 5 and n is 7"),
    (TRANSPOSE + "c2r", "transpose/m9n1000000/f32/in", "a row of 4000000 bytes fits neither"),
    (TRANSPOSE + "c2r", "transpose/m9n1000000/f32/in", "which has 9 rows, expected at least 10"),
    (FUSED, "transpose/m64n128/f32/in", "the stash takes 32 of 64 rows, expected at most a tenth"),
    (FUSED, "transpose/m9n1000000/f32/in", "4000000 bytes of shared memory, expected at most 232448"),
    (FUSED, "transpose/m10001n9001/f32/in", "a stripe of 8 columns takes 288032 bytes"),
    (TRANSPOSE + "tma", "transpose/m64n30/f32/out", "rows of a begin every 120 bytes, expected a multiple of 16"),
    (TRANSPOSE + "tma", "transpose/m30n64/f32/out", "rows of b begin every 120 bytes, expected a multiple of 16"),
    (TRANSPOSE + "tma", "transpose/m8n4/f16/out", "rows of a begin every 8 bytes, expected a multiple of 16"),
    (TILED, f"conv/{LAYER}stride2/f32/nchw/dgrad", "stride is 2, expected 1: dgrad is run as a forward"),
    *[
        (CONV + name, f"conv/{LAYER}/f32/nchw/wgrad", "has no wgrad path")
        for name in ("direct_tiled", "winograd", "winograd4", "winograd4_fused", "fft_fused")
    ],
    (TILED, "conv/n1c1h200w200k1r90s90/f32/nchw/fprop", "no tile is valid: 4 channels take"),
    (DEPTHWISE, "conv/n1c8h9w9k8r3s3/f32/nchw/fprop/g4", "groups is 4, expected c = 8: each filter reads one"),
    (DEPTHWISE, "conv/n1c1h200w200k1r120s120/f32/nchw/fprop", "bytes of shared memory, expected at most 49152"),
    *[
        (f"{CONV}implicit_{name}", f"conv/n1c{c}h8w8k{k}r3s3/{dtype}/nhwc/{direction}", reason)
        for name, dtype, least in (("mma", "f16", 8), ("tf32", "f32", 4), ("3xtf32", "f32", 4))
        for c, k, direction, reason in (
            (3, least, "fprop", f"c / groups is 3, expected a multiple of {least}"),
            (least, 5, "fprop", ""),
            (least, 5, "dgrad", "k / groups is 5"),
            (least, 5, "wgrad", "k / groups is 5"),
        )
    ],
    (CONV + "implicit", "conv/n1c65536h2w2k65536r1s1/f32/nchw/fprop/g65536", "65536 parts"),
    (CONV + "implicit", "conv/n64c40000h64w512k1r1s1/f32/nchw/fprop", "a tile spans"),
    *[
        (CONV + "implicit_wgmma", f"conv/{problem}", reason)
        for problem, reason in (
            ("n1c16h8w8k16r3s3/f16/nhwc/fprop/g2", "groups is 2, expected 1"),
            ("n1c12h8w8k16r3s3/f16/nhwc/fprop", "c is 12, expected a multiple of 8"),
            ("n1c16h8w8k12r3s3/f16/nhwc/fprop", "k is 12, expected a multiple of 8"),
            ("n1c16h8w8k16r3s3stride2/f16/nhwc/dgrad", "the stride is 2, expected 1 in an input's gradient"),
            ("n1c16h8w600k16r1s300/f16/nhwc/fprop", "a tap lies 299 pixels from the first one, expected at most 255"),
            ("n1c16h8w300k16r1s150/f16/nhwc/fprop", "a corner is -149, expected -128 to 127"),
            ("n1c16h90w90k16r1s1stride9/f16/nhwc/fprop", "a stride is 9, expected 1 to 8"),
            ("n1c16h8w8k16r3s3/f16/nchw/fprop", "has no nchw path"),
        )
    ],
    *[
        (CONV + name, f"conv/{problem}", reason)
        for name in ("winograd", "winograd4", "winograd4_fused")
        for problem, reason in (
            ("n1c2h9w9k2r3s3stride2/f32/nchw/fprop", "stride is 2, expected 1"),
            ("n1c2h9w9k2r3s3stride1x2/f32/nhwc/dgrad", "stride is 1x2, expected 1"),
            ("n1c2h9w9k2r3s3/f32/nchw/fprop/dil2", "dilation is 2, expected 1"),
            ("n1c2h9w9k2r1s3/f32/nchw/fprop", "filter is 1x3, expected 3x3"),
            ("n1c2h9w9k2r5s5/f32/nchw/dgrad", "filter is 5x5, expected 3x3"),
            ("n1c524281h3w3k1r3s3/f32/nchw/fprop", "got 524281 channels, expected at most 524280"),
            ("n1c1h65536w65536k1r3s3/f32/nchw/fprop", "the padded input has 4294967296 elements"),
        )
    ],
    (CONV + "winograd4", "conv/n1c1821h3w3k1821r3s3/f32/nchw/fprop/g1821", "got 1821 groups, expected at most 1820"),
    (CONV + "winograd", "conv/n1c1821h3w3k1821r3s3/f32/nchw/fprop/g1821", ""),
    *[
        (f"conv/cpu.{name}", f"conv/{problem}", reason)
        for name in ("winograd", "winograd4")
        for problem, reason in (
            ("n1c4h9w9k4r3s3stride2/f32/nchw/fprop", "stride is 2, expected 1"),
            ("n1c4h9w9k4r3s3stride2x1/f32/nchw/fprop", "stride is 2x1, expected 1"),
            ("n1c4h9w9k4r3s3/f32/nchw/fprop/dil2", "dilation is 2, expected 1"),
            ("n1c4h9w9k4r3s3/f32/nchw/fprop/g2", "groups is 2, expected 1"),
            ("n1c4h9w9k4r5s3/f32/nchw/fprop", "r is 5, expected 3"),
            ("n1c4h9w9k4r3s1/f32/nchw/dgrad", "s is 1, expected 3"),
        )
    ],
    *[
        (CONV + name, f"conv/{sizes}/f32/nchw/fprop{words}", reason)
        for name in ("fft_tiled", "fft_fused")
        for sizes, words, reason in (
            ("n1c2h9w9k2r3s3stride2", "", "stride is 2, expected 1"),
            ("n1c2h9w9k2r3s3stride1x2", "", "stride is 1x2, expected 1"),
            ("n1c2h9w9k2r3s3", "/dil2", "dilation is 2, expected 1"),
            ("n1c2h40w40k2r32s3", "", "r is 32, expected less than 32, the side of a tile"),
            ("n1c2h40w40k2r3s33", "", "s is 33, expected less than 32, the side of a tile"),
            ("n1c65536h3w3k65536r3s3", "/g65536", "groups is 65536, expected at most 65535: a grid has 65535 blocks"),
        )
    ],
    *[
        (CONV + "fft_fused", f"conv/{problem}", f"{reason}, the tiles of a block")
        for problem, reason in (
            ("n1c9h9w9k2r3s3/f32/nchw/fprop", "c / groups is 9, expected at most 8"),
            ("n1c5h39w39k2r17s3/f32/nchw/fprop", "c / groups is 5, expected at most 4"),
            ("n1c2h9w9k18r3s3/f32/nchw/dgrad/g2", "k / groups is 9, expected at most 8"),
        )
    ],
    (
        "conv/numba.fft_tiled",
        "conv/n1c2h300w20k2r25s3/f32/nchw/fprop/dil4x1",
        "r spans 97 elements, expected at most 96",
    ),
    *[
        (f"conv/cufft.{name}", "conv/n65536c32768h8w8k1r3s3/f32/nchw/fprop", f"{2**31} transforms, expected at most")
        for name in ("full", "tiled")
    ],
    # Problems that cuDNN computes wrong on a GPU are refused.
    ("conv/cudnn_frontend.fft", "conv/n4c128h33w35k136r3s3pad1/f32/nchw/dgrad", ""),
    ("conv/cudnn_frontend.fft", "conv/n4c128h33w35k136r3s3pad1-0x1/f32/nchw/dgrad", "engines return wrong results"),
    ("conv/cudnn.algo_0", "conv/n8c64h56w57k72r3s3pad1/f32/nchw/dgrad", ""),
    ("conv/cudnn.algo_0", "conv/n8c64h56w57k72r3s3pad1/f16/nchw/dgrad", "has no f16 path; it has f32"),
    ("conv/cudnn.algo_0", "conv/n8c64h56w57k72r3s3pad1/bf16/nchw/dgrad", "has no bf16 path; it has f32"),
    ("aggregate/cpu.onebit", "aggregate/w2n511/f32/ef", "n is 511, expected at least 512, a block of onebit"),
    ("aggregate/cpu.onebit", "aggregate/w2n1000/f32", "aggregate/cpu.onebit has no plain path; it has ef"),
    ("aggregate/process.ring", "aggregate/w1024n8/f32", "w is 1024, expected at most "),
    ("conv/torch.conv2d", "conv/n1c4h9w9k4r3s3pad0x1-2/f32/nchw/fprop", "pad is 0x1-2, expected the same before and"),
    ("fft/cufft.plan", f"fft/b1h1w{2**31}/f32/c2c", "does not fit cuFFT's int"),
    ("fft/cufft.plan", f"fft/b1h1w{2**31 - 1}/f32/c2c", ""),
    *[
        (FFT, f"fft/b3h{h}w{w}/{dtype}/r2c", f"h x w is {h} x {w}, expected 8 x 8, ")
        for dtype, sizes in (
            ("f32", ((1, 4), (8, 16), (64, 64), (1, 128), (1, 2048), (8, 1), (7, 7))),
            ("f64", ((1, 64), (1, 256), (1, 1024))),
        )
        for h, w in sizes
    ],
    ("fma/cuda.ffma", "fma/n2147483648k1/f32", "expected at most 2147483647"),
]


@pytest.mark.parametrize("op", dict.fromkeys(kernel.partition("/")[0] for kernel, *_ in REFUSED))
def test_a_problem_is_refused_with_the_reason_or_taken(op):
    rows = [(*row, refusal(*row[:2])) for row in REFUSED if row[0].startswith(f"{op}/")]
    assert [row for row in rows if (row[2] not in row[3] if row[2] else row[3])] == []


def test_cudnn_and_pytorch_refuse_uneven_padding():
    modules = [f"kernelmark.kernels.conv.vendor.{name}" for name in ("cudnn", "torch")]
    vendors = [kernel for kernel in REGISTRY.kernels.values() if kernel.module in modules]
    for pad, direction in product(("pad0-1", "pad1x2-1"), ("fprop", "dgrad", "wgrad")):
        problem = REGISTRY.problem(f"conv/n1c1h5w5k1r3s3{pad}/f32/nchw/{direction}")
        reasons = [kernel.refuses(problem) for kernel in vendors if kernel.outside(problem) is None]
        assert reasons
        assert all(reason and "expected the same before and after" in reason for reason in reasons)
