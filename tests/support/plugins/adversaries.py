"""A plug-in of kernels that are wrong, that raise, or that cheat; each is named after what it does."""

from itertools import count

import numpy as np

from kernelmark import Unsupported, kernel


def declare(name, act=lambda x: None, set_up=lambda x: None, **options):
    """Register a kernel that copies and then calls `act`; its set-up calls `set_up`."""

    def launcher(problem, x):
        set_up(x)

        def launch():
            np.copyto(x.b, x.a)
            act(x)

        return launch

    launcher.__doc__ = f"Copies, but: {name.replace('_', ' ')}."
    kernel("copy", provider="test", device="cpu", numerics="exact", dtypes=("f32",), name=name, **options)(launcher)


def raises(error, after=0):
    calls = count()

    def act(x):
        if next(calls) >= after:
            raise error

    return act


def out_of_bounds(x):
    np.lib.stride_tricks.as_strided(x.b, (2, 1), (x.b.nbytes, 4))[1, 0] = 1


declare("honest")
declare("wrong_element", lambda x: x.b.__setitem__((-1, -1), x.b[-1, -1] + np.float32(1e-3)))
declare("nan_element", lambda x: x.b.__setitem__((0, 1), np.nan))
declare("zeroes_input", lambda x: x.a.fill(0))
declare("out_of_bounds", out_of_bounds)
CALLS = count()
declare("out_of_bounds_when_timed", lambda x: out_of_bounds(x) if next(CALLS) > 2 else None)
declare("raises_in_set_up", set_up=raises(RuntimeError("no such thing\nsecond line")))
declare("raises_in_run", raises(ValueError("cannot")))
declare("raises_when_timed", raises(ArithmeticError("worn out"), after=5))
declare("no_memory", set_up=raises(MemoryError("4 PB wanted")))
declare("greedy", set_up=lambda x: x.scratch((10**15,), "f32"))
declare("miscounted", executed=raises(ZeroDivisionError("no tiles")))
declare("counted", set_up=lambda x: x.chose(tile=3), executed=lambda problem: 7)
declare("refuses", set_up=raises(Unsupported("takes no matrices on Saturdays")))

COPY = {"provider": "test", "device": "cpu", "numerics": "exact", "dtypes": ("f32",)}


@kernel("copy", **COPY)
def lacks_lambda(problem, x):
    return np.add(x.a, 0, out=x.b)


@kernel("copy", **COPY)
def unwritten_element(problem, x):
    """Leaves one element out."""

    def launch():
        keep = x.b[1, 2].copy()
        np.copyto(x.b, x.a)
        x.b.view(np.uint32)[1, 2] = keep.view(np.uint32)

    return launch


@kernel("copy", **COPY)
def in_set_up(problem, x):
    """Computes its answer during set-up."""
    answer = x.a.copy()
    return lambda: np.copyto(x.b, answer)


@kernel("copy", **COPY)
def looks_at_one(problem, x):
    """Copies its input only if the first element has changed; otherwise returns the last copy."""
    seen = [None, None]

    def launch():
        if seen[0] != x.a[0, 0]:
            seen[:] = x.a[0, 0], x.a.copy()
        np.copyto(x.b, seen[1])

    return launch


def declare_product(name, act, **options):
    declared = {"provider": "test", "device": "cpu", "dtypes": ("f32",), "name": name, "label": name, **options}
    kernel("gemm", **declared)(lambda problem, x: lambda: act(x))


def add_in_f32(x):
    """Add a product to C, which is stored in f16: if C is not restored, it soon exceeds 65504."""
    x.c[...] = (x.a.astype("f4") @ x.b.astype("f4") + x.c.astype("f4")).astype("f2")


declare_product("zeros", lambda x: x.c.fill(0))
declare_product("infinite", lambda x: x.c.fill(np.inf))
declare_product("raises", raises(ValueError("no luck")))
declare_product("picky", lambda x: None, supports=lambda problem: 'needs "m % 4", not 33,\r\nand patience')
declare_product("overstated", lambda x: np.matmul(x.a, x.b.T, out=x.c), executed=lambda problem: 10**15)
declare_product("adds_in_f32", add_in_f32, dtypes=("f16",), layouts=("NN",))
