"""kernelmark: microbenchmarks of GEMM, transposition, FFT and convolution kernels.

Files with kernels or operations import the names of `kernelmark.public`; `load` and `measure` are for programs and
notebooks. All are loaded on first use, since the pytest plug-in and `--help` need none. `bench`, `kernels` and `cuda`
next to this file are links to the folders of these names at the top of the repository; in a wheel they are folders.
"""

TYPE_CHECKING = False  # not imported from `typing`, which is slow to load
if TYPE_CHECKING:
    from typing import Any

    from kernelmark.public import *  # noqa: F403

__version__ = "0.1.0"
#: Names that no kernel needs, with their modules: workers import this package, and must not load these.
_MODULES = {"load": "results", "measure": "notebook"}


def __getattr__(name: str) -> "Any":
    """Return a public name. Raises AttributeError."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"kernelmark.bench.{_MODULES[name]}"), name)
    if name == "__all__" or (not name.startswith("__") and name != "public"):
        import kernelmark.public as public

        if name in ("__all__", *public.__all__):
            return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
