"""The ends that are looked at: a problem and some blocks for each kernel whose operands have no rows to move apart."""

from emulator.ends import Choose, End, ends, last, numbered
from kernelmark.bench.emulator.worker import Launch
from kernelmark.kernels.gemm.ladder import SMALL


def _all_ends(planned: list[Launch]) -> list[Launch]:
    return [ends(launch) for launch in planned]


def _corner(planned: list[Launch]) -> list[Launch]:
    """Choose the blocks that swap the last two tiles along the diagonal (transpose/pairs.cuh), of an even number."""
    (launch,) = planned
    assert isinstance(launch.grid, tuple)
    return [numbered(launch, 0, launch.grid[0], launch.grid[0] + 1)]


def _spectra(channels: int, filters: int) -> Choose:
    """Choose what fft_tiled.cu does for the last 32 images, of which a block transforms 16."""

    def choose(planned: list[Launch]) -> list[Launch]:
        of_w, of_x, multiply, to_y = planned
        return [of_w, ends(of_x, channels, 2), ends(multiply), ends(to_y, filters, 2)]

    return choose


def _channels_spectra(planned: list[Launch]) -> list[Launch]:
    """Choose what fft_tiled.cu does for the filters of the last 16 channels."""
    of_x, of_y, multiply, to_w = planned
    return [ends(of_x), of_y, ends(multiply), ends(to_w, blocks=16)]


#: 64 x 64 in f32.
_SQUARES = {"SQUARES": 16, "RING": 96, "BLOCKS": 2**21, "GROUP": 4}
_PACKS = {"V": 4, "THREADS": 256, "BLOCKS": 2**23}
_CODES = {"V": 4, "THREADS": 128, "BLOCKS": 2**23}
_LARGE = 3 * 2**29  # elements of a gradient, of four or five
#: Rows of scratch of four workers, and what a block of 128 threads has of it.
_ONE_BIT = {"words_of_workers": (4, 256), "scales_of_workers": (4, 32)}
_ONE_BIT |= {"words_of_owners": (1, 256), "scales_of_owners": (1, 32)}
_BYTES = {"words_of_workers": (4, 1024), "scales_of_workers": (4, 16)}
_BYTES |= {"words_of_owners": (1, 1024), "scales_of_owners": (1, 16)}
_FFT_TILE = {"T": 16, "BM": 16, "BN": 32, "BK": 8, "WM": 16, "WN": 32, "TM": 4, "TN": 4, "STAGES": 3}

ENDS = (
    End("transpose/cuda.unpadded", "transpose/m3n3/f32/out", {"m": 65603, "n": 65571}),
    End("transpose/cuda.tiled", "transpose/m3n3/f16/out", {"m": 65603, "n": 65571}),
    End("transpose/cuda.vectorised", "transpose/m8n8/f32/out", {"m": 65608, "n": 65544}),
    End("transpose/cuda.tma", "transpose/m64n64/f32/out", {"m": 65600, "n": 65600}, _SQUARES),
    End(
        "transpose/cuda.batched",
        "transpose/b2m64n64/f32/out",
        {"batch": 2**20 + 2},
        {"TILE": 64, "THREADS": 256},
        lambda planned: [last(planned[0], 2)],
    ),
    End("transpose/cuda.tiled_inplace", "transpose/m64n64/f32/in", {"m": 65600, "n": 65600}, choose=_corner),
    End("transpose/cuda.vectorised_inplace", "transpose/m128n128/f32/in", {"m": 65664, "n": 65664}, choose=_corner),
    # More than 2^32 vectors of 16 bytes.
    End("copy/cuda.vectorised", "copy/m1n16384/f64", {"m": 2**19 + 1}, {"THREADS": 512, "LOADS": 16, "BLOCKS": 2**20}),
    End(
        "transfer/cuda.arrived",
        "transfer/n8192/f64/d2d/work2",
        {"n": 2**33 + 8192},
        {"THREADS": 512, "LOADS": 8, "BLOCKS": 2**21},
    ),
    End("fft/cuda.small", "fft/b16h8w8/f32/c2c", {"b": 2**26 + 16}),
    End("fft/cuda.small", "fft/b32h8w8/f32/r2c", {"b": 2**26 + 32}),
    End("fft/cuda.small", "fft/b32h8w8/f32/c2r", {"b": 2**26 + 32}),
    End("aggregate/cuda.device", "aggregate/w5n1024/f32", {"n": _LARGE}, _PACKS | {"ROWS": 4}, _all_ends),
    End("aggregate/cuda.device", "aggregate/w5n1024/f32/update", {"n": _LARGE}, _PACKS | {"ROWS": 4}, _all_ends),
    End("aggregate/cuda.tree", "aggregate/w4n1024/f32", {"n": _LARGE}, _PACKS, _all_ends, {"partial": (2, 4096)}),
    End(
        "aggregate/cuda.tree", "aggregate/w4n1024/f32/update", {"n": _LARGE}, _PACKS, _all_ends, {"partial": (2, 4096)}
    ),
    End("aggregate/cuda.onebit", "aggregate/w4n2048/f32/ef", {"n": _LARGE}, _CODES, _all_ends, _ONE_BIT),
    End("aggregate/cuda.int8", "aggregate/w4n1024/f32/update/ef", {"n": _LARGE}, _CODES, _all_ends, _BYTES),
    End("conv/cuda.direct", "conv/n1c8h4w8k64r2s2/f32/nchw/dgrad", {"n": 3_200_000}),
    End("conv/cuda.direct", "conv/n1c32h2w4k512r2s2/f32/nhwc/dgrad", {"n": 2_800_000}),
    End("conv/cuda.direct_tiled", "conv/n1c64h33w33k32r1s1stride8/f32/nchw/fprop", {"n": 65535}),
    End("conv/cuda.direct_tiled", "conv/n1c64h33w33k32r1s1stride8/f32/nhwc/fprop", {"n": 65535}),
    End("conv/cuda.direct_tiled", "conv/n1c32h8w8k1040r1s1/f32/nchw/dgrad", {"n": 65535}),
    End(
        "conv/cuda.depthwise",
        "conv/n1c4h46w46k4r1s1stride15/f32/nchw/fprop/g4",
        {"n": 65535, "c": 32, "k": 32, "groups": 32},
    ),
    End(
        "conv/cuda.depthwise",
        "conv/n1c32h46w46k32r1s1stride15/f32/nhwc/fprop/g32",
        {"n": 65535},
        choose=lambda planned: [last(planned[0], 4)],
    ),
    End(
        "conv/cuda.depthwise",
        "conv/n1c16h8w8k16r3s3pad1/f32/nchw/dgrad/g16",
        {"n": 65535, "c": 1056, "k": 1056, "groups": 1056},
    ),
    End(
        "conv/cuda.depthwise",
        "conv/n1c32h8w8k32r3s3pad1/f32/nhwc/dgrad/g32",
        {"n": 65535, "c": 1056, "k": 1056, "groups": 1056},
        choose=lambda planned: [last(planned[0], 2)],
    ),
    End("conv/cuda.implicit", "conv/n2c8h8w8k64r2s2/f32/nchw/dgrad", {"n": 1_400_000}),
    End("conv/cuda.implicit", "conv/n2c8h8w8k64r2s2/f32/nhwc/dgrad", {"n": 1_400_000}),
    End("conv/cuda.implicit_mma", "conv/n1c8h8w8k64r2s2/f16/nhwc/dgrad", {"n": 1_400_000}),
    End("conv/cuda.implicit_tf32", "conv/n1c8h8w8k64r2s2/f32/nhwc/dgrad", {"n": 1_400_000}),
    *(
        End(
            "conv/cuda.im2col",
            f"conv/n1c8h9w9k4096r2s2/f32/{layout}/dgrad",
            {"n": 16390},
            SMALL | {"SLICE": 8, "KIB": 1},
            choose=lambda planned: planned[-2:],
        )
        for layout in ("nchw", "nhwc")
    ),
    End("conv/cuda.winograd", "conv/n1c64h16w8k32r3s3pad1/f32/nchw/fprop", {"n": 524_300}),
    End("conv/cuda.winograd", "conv/n1c32h16w8k64r3s3pad1/f32/nhwc/dgrad", {"n": 524_300}),
    *(
        End(
            "conv/cuda.winograd4",
            part,
            {"n": 131_080},
            SMALL | {"KIB": 64},
            choose=lambda planned: [planned[0], *planned[-3:]],
        )
        for part in ("conv/n4c256h16w8k4r3s3pad1/f32/nchw/fprop", "conv/n4c4h16w8k256r3s3pad1/f32/nhwc/dgrad")
    ),
    *(
        End(
            "conv/cuda.winograd4_fused",
            part,
            {"n": 131_080},
            {"STAGES": 3, "KIB": 64},
            choose=lambda planned: [planned[0], *planned[-2:]],
        )
        for part in ("conv/n4c256h16w8k4r3s3pad1/f32/nchw/fprop", "conv/n4c4h16w8k256r3s3pad1/f32/nhwc/dgrad")
    ),
    End(
        "conv/cuda.fft_tiled",
        "conv/n32c8h16w16k16r5s5/f32/nchw/fprop",
        {"n": 2_097_184},
        _FFT_TILE,
        _spectra(8, 16),
        {"spectrum_x": (144 * 8, 256), "spectrum_y": (144 * 16, 256)},
    ),
    End(
        "conv/cuda.fft_tiled",
        "conv/n1c16h16w16k16r9s9/f32/nchw/wgrad",
        {"c": 3_400_000},
        _FFT_TILE,
        _channels_spectra,
        {"spectrum_x": (144, 128), "spectrum_w": (144, 2048)},
    ),
    End("conv/cuda.fft_fused", "conv/n2c8h16w16k8r5s5/f32/nchw/fprop", {"n": 2_097_184}, {"T": 16, "BLOCKS": 1}),
)
