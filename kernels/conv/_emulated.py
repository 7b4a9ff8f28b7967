"""The sizes and options of the convolutions for which kernels run on the emulator."""

from functools import cache
from typing import Any

import msgspec

from kernelmark import EmulatedSizes, Problem

#: These suit most kernels and cover everything that can go wrong: one element; a filter larger than the image;
#: strides larger than the filter; every option at once, different in height and width; prime sizes; one dimension;
#: rows of whole vectors in a ragged tile; more than one tile of pixels, channels and filters; whole tiles of an FFT.
RAGGED = (
    "n1c1h1w1k1r1s1",
    "n1c2h1w1k3r3s3pad1",
    "n2c6h7w5k4r3s3pad0-1x1-0/g2",
    "n2c4h6w7k4r1s1stride3",
    "n2c6h9w7k4r3s2pad0-1x2-0stride2x1/dil1x2/g2",
    "n1c5h11w13k7r5s3pad2x1stride3",
    "n3c4h1w69k6r1s5pad0x2stride1x2/g2",
    "n1c5h10w37k35r2s3",
    "n2c8h8w12k24r3s3pad1",
    "n2c33h6w9k67r3s3pad0-1x1",
    "n2c5h8w8k5r3s3pad1/g5",
    "n1c3h21w26k5r4s3pad1x0",
)
#: For kernels that support too few of the above: 3 x 3 filters at unit stride; channels and filters that fill vectors;
#: depthwise.
MORE = (
    *("n1c9h5w14k66r3s3", "n2c17h9w8k33r3s3pad1x2", "n1c66h5w7k9r3s3pad0-1x1-0", "n3c2h6w11k5r3s3", "n1c1h3w3k1r3s3"),
    *("n1c2h4w4k3r3s3", "n1c8h16w16k16r3s3pad2", "n1c32h5w5k8r3s3pad1", "n2c4h4w13k3r3s3"),
    *("n2c16h8w8k32r1s1", "n1c40h5w6k8r2s2stride2", "n1c8h9w9k8r5s5pad2/dil2", "n1c16h6w5k32r3s3pad1stride2/g2"),
    *("n1c24h7w6k40r3s2pad1x0-1", "n2c48h3w5k16r1s3pad0x1"),
    *("n1c3h9w7k6r3s5pad1x2/g3", "n2c7h6w11k7r5s5pad2stride2/g7", "n1c33h5w4k33r3s3pad1/g33"),
    *("n1c2h13w35k2r3s3pad0-1x1/g2", "n1c4h8w9k12r1s7pad0x3/g4", "n3c16h6w6k16r3s3pad2stride1x2/dil2x1/g16"),
    *("n2c8h19w6k8r3s2pad1stride3/g8", "n1c40h4w5k40r2s2/g40", "n1c16h4w9k72r2s3pad1x0"),
)


@cache
def emulated(problem_class: type[Problem]) -> EmulatedSizes:
    """Return sizes and options for runs on the emulator, to be combined with each dtype, layout and direction."""
    return EmulatedSizes(
        first=[_values(problem_class, text) for text in RAGGED],
        more=[_values(problem_class, text) for text in MORE],
        long_from=72,
        deep={"fprop": "c", "dgrad": "k"},
    )


def _values(problem_class: type[Problem], text: str) -> dict[str, Any]:
    sizes, slash, options = text.partition("/")
    values = msgspec.structs.asdict(problem_class.parse(f"{sizes}/f32/nchw/fprop{slash}{options}"))
    return {name: value for name, value in values.items() if name not in ("dtype", "layout", "direction")}
