"""kernelmark: microbenchmarks of GEMM, transposition, FFT and convolution kernels.

The names that a file with kernels or operations imports are those of `kernelmark.public`; `load` and `measure` are for
programs and notebooks. They are loaded when the first of them is asked for: the pytest plug-in and `--help` need none.
`bench`, `kernels` and `cuda` beside this file lead to the folders of those names at the top of the repository; in a
wheel they are folders.
"""

TYPE_CHECKING = False  # as `typing` has it, which takes long to load
if TYPE_CHECKING:
    from typing import Any

    from kernelmark.public import *  # noqa: F403

__version__ = "0.1.0"
#: The modules of names that no kernel needs; what measures a job must not import them with this package.
_MODULES = {"load": "results", "measure": "notebook"}


def __getattr__(name: str) -> "Any":
    """Return a name of the public face. Raises AttributeError."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"kernelmark.bench.{_MODULES[name]}"), name)
    if name == "__all__" or (not name.startswith("__") and name != "public"):
        import kernelmark.public as public

        if name in ("__all__", *public.__all__):
            return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
