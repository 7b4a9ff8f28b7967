"""Shared by callers of cuFFT: values of cufft.h, and the version."""

TYPES = {
    ("f32", "r2c"): 0x2A,
    ("f32", "c2r"): 0x2C,
    ("f32", "c2c"): 0x29,
    ("f64", "r2c"): 0x6A,
    ("f64", "c2r"): 0x6C,
    ("f64", "c2c"): 0x69,
}
SIGNS = {"forward": -1, "inverse": 1}


def described(problem: object) -> str:
    """Return the library with its version: `cufft 12.0.0`."""
    from cupy.cuda import cufft

    version = cufft.getVersion()
    return f"cufft {version // 1000}.{version // 100 % 10}.{version % 100}"
