"""Substitutes for host headers that kernels include but NVRTC lacks, with the part that device code uses."""

import re
from collections.abc import Iterable
from pathlib import Path

_INTEGERS = "".join(
    f"typedef {'unsigned ' if sign else 'signed '}{kind} {sign}int{bits}_t;\n"
    for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
    for sign in ("", "u")
)
#: NVRTC has size_t, printf, assert and the functions of math.h built in.
_TEXTS = {
    "stdint": f"{_INTEGERS}typedef unsigned long long uintptr_t;\ntypedef long long intptr_t;\n"
    "#define UINT32_MAX 0xffffffffu\n#define INT32_MAX 0x7fffffff\n#define INT32_MIN (-INT32_MAX - 1)\n",
    "limits": "#define CHAR_BIT 8\n#define INT_MAX 0x7fffffff\n#define INT_MIN (-INT_MAX - 1)\n"
    "#define UINT_MAX 0xffffffffu\n#define LLONG_MAX 0x7fffffffffffffffll\n#define LLONG_MIN (-LLONG_MAX - 1)\n",
    "float": "#define FLT_MAX 3.402823466e+38f\n#define FLT_MIN 1.175494351e-38f\n"
    "#define FLT_EPSILON 1.192092896e-07f\n#define DBL_MAX 1.7976931348623158e+308\n"
    "#define DBL_MIN 2.2250738585072014e-308\n"
    "#define DBL_EPSILON 2.2204460492503131e-16\n",
    "math": "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n"
    "#ifndef NAN\n#define NAN __int_as_float(0x7fffffff)\n#endif\n"
    "#ifndef M_PI\n#define M_PI 3.14159265358979323846\n#endif\n",
    **dict.fromkeys(("assert", "stddef", "stdio", "stdlib", "string"), ""),
}
#: CUDA's C++ library has the part of these headers that device code may use.
_OF_CUDA = ("array", "limits", "tuple", "type_traits", "utility")

#: Included before a user's file, since nvcc defines INFINITY and uint32_t without a header.
FIRST = "nvcc_knows.h"


def _texts() -> dict[str, str]:
    texts = {f"{name}.h": text for name, text in _TEXTS.items()} | {f"c{name}": text for name, text in _TEXTS.items()}
    std = "#include <cuda/std/{0}>\nnamespace std {{ using namespace cuda::std; }}\n"
    return texts | {name: std.format(name) for name in _OF_CUDA} | {"algorithm": "", "iostream": ""}


def write(folder: Path, texts: Iterable[bytes]) -> None:
    """Write the substitutes for all headers that these texts include, and the header that is included first."""
    (folder / FIRST).write_text("#include <math.h>\n#include <stdint.h>\n")
    wanted = {"math.h", "stdint.h"} | {
        name.decode() for text in texts for name in re.findall(rb'^\s*#\s*include\s*["<](.+?)[">]', text, re.MULTILINE)
    }
    for name, text in _texts().items():
        if name in wanted:
            (folder / name).write_text(f"#pragma once\n{text}")
