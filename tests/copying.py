"""Kernels that copy, or fail to, declared by a test in its own process."""

from kernelmark import Unsupported, kernel

SMALL = "copy/m3n5/f32"


def declare(name, set_up, **options):
    kernel("copy", name=name, **{"provider": "mine", "device": "cpu", "numerics": "exact", **options})(set_up)


def copy(problem, x):
    def launch():
        x.b[...] = x.a

    return launch


def nothing(problem, x):
    return lambda: None


def raises(problem, x):
    raise ValueError("no luck\nat all")


def refuses(problem, x):
    raise Unsupported("takes even m")


def out_of_memory(problem, x):
    raise MemoryError("too large")
