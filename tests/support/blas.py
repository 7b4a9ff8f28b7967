"""Stand-ins for cuBLAS and cuBLASLt on host memory, which compute with NumPy as the libraries' references specify."""

import ctypes
import enum
import json
from functools import partial, partialmethod
from types import SimpleNamespace

import numpy as np

import conformance
from kernelmark.bench.measure.draw import drawn, logical, poison
from kernelmark.bench.plan.dtypes import numpy_dtype

STORED = {0: "f32", 1: "f64", 2: "f16", 14: "bf16", 28: "e4m3", 3: "s8", 10: "s32"}


def view(pointer, kind, shape, strides):
    size = np.dtype(kind).itemsize
    extent = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    raw = (ctypes.c_char * (extent * size)).from_address(pointer)
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, kind), shape, [stride * size for stride in strides])


def matrix(pointer, dtype, ld, rows, cols):
    return view(pointer, numpy_dtype(dtype), (rows, cols), (1, ld))


class Blas:
    """A fake cuBLAS: cublas<T>gemm and cublasGemmEx, plain and strided batched, with the documented arguments."""

    def set_stream(self, handle, stream): ...
    def set_workspace(self, handle, pointer, nbytes): ...

    def __getattr__(self, name):
        return lambda handle, *arguments: self.run(name, list(arguments))

    def sgeam(self, handle, trans_a, trans_b, m, n, alpha, *rest):
        """Compute C = alpha op(A) + beta C in place; C is not read if beta is 0."""
        a, lda, beta, b, ldb, c, ldc = rest
        factors = [ctypes.c_float.from_address(address).value for address in (alpha, beta)]
        assert (trans_b, b, ldb) == (0, c, ldc)
        A = matrix(a, "f32", lda, *((n, m) if trans_a else (m, n)))
        C = matrix(c, "f32", ldc, m, n)
        C[...] = factors[0] * (A.T if trans_a else A) + (factors[1] * C if factors[1] else 0)

    def gemm_grouped_batched_ex(self, handle, *rest):
        """Compute a product for each group, from arrays of arguments. With cuBLAS, addresses are in device memory."""
        *sizes, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, count, each, compute = rest
        kind = ctypes.c_double if compute == 70 else ctypes.c_float

        def values(address, kind=ctypes.c_int):
            return list((kind * count).from_address(address))

        assert values(each) == [1] * count
        assert compute == (70 if type_c == 1 else 68)
        for i in range(count):
            operands = ((a, type_a, lda), (b, type_b, ldb), (c, type_c, ldc))
            x, y, z = ((values(at, ctypes.c_uint64)[i], dtype, values(ld)[i]) for at, dtype, ld in operands)
            scalars = [ctypes.addressof(kind.from_address(at + i * ctypes.sizeof(kind))) for at in (alpha, beta)]
            self.run(
                "dgemm_ex" if compute == 70 else "gemm_ex",
                [*(values(size)[i] for size in sizes), scalars[0], *x, *y, scalars[1], *z, 68, -1],
            )

    def run(self, name, rest):
        typed, batched, fixed = "_ex" in name, "batched" in name, "f64" if name.startswith("d") else "f32"
        take = lambda: rest.pop(0)  # noqa: E731
        trans_a, trans_b, m, n, k, alpha = (take() for _ in range(6))

        def operand():
            pointer, dtype = take(), STORED[take()] if typed else fixed
            return pointer, dtype, take(), take() if batched else 0

        a, b = operand(), operand()
        beta, c = take(), operand()
        batch = take() if batched else 1
        if typed:
            assert take() in (68, 77)
            assert take() == -1
        assert rest == []
        scalar = ctypes.c_double if fixed == "f64" else ctypes.c_float
        alpha, beta = scalar.from_address(alpha).value, scalar.from_address(beta).value
        for i in range(batch):
            A, B, C = (
                matrix(pointer + i * stride * numpy_dtype(dtype).itemsize, dtype, ld, *shape)
                for (pointer, dtype, ld, stride), shape in (
                    (a, (k, m) if trans_a else (m, k)),
                    (b, (n, k) if trans_b else (k, n)),
                    (c, (m, n)),
                )
            )
            A, B = A.T if trans_a else A, B.T if trans_b else B
            product = alpha * (A.astype(np.float64) @ B.astype(np.float64))
            C[...] = (product + beta * C.astype(np.float64) if beta else product).astype(C.dtype)


def array(host):
    return SimpleNamespace(data=SimpleNamespace(ptr=host.ctypes.data), set=partial(np.copyto, host))


class HostOperands(SimpleNamespace):
    """A problem's operands, drawn in host memory, with the interface of operands on a GPU.

    flat, views: their values as stored, and in the problem's shapes; before: copies of the readable operands.
    buffers: the scratch buffers, filled with NaN.
    """

    def __init__(self, problem, order="C"):
        rng, self.flat, self.buffers, self.chosen = np.random.default_rng(0), {}, [], {}
        for spec in problem.operands():
            self.flat[spec.name] = drawn(rng, (spec.elements,), spec)
            if spec.role == "out":
                poison(self.flat[spec.name], spec.dtype)
        self.views = {spec.name: logical(self.flat[spec.name], spec, order) for spec in problem.operands()}
        self.before = {o.name: self.views[o.name].copy() for o in problem.operands() if o.role != "out"}
        (self.output,) = (spec.name for spec in problem.operands() if spec.role != "in")
        arrays = {name: array(values) for name, values in self.flat.items()}
        super().__init__(problem=problem, stream=SimpleNamespace(ptr=5), threads=1, **arrays)

    def scratch(self, shape, dtype):
        self.buffers.append(np.full(shape, np.nan, numpy_dtype(dtype)))
        return array(self.buffers[-1])

    def chose(self, **settings):
        self.chosen |= settings

    def complaint(self, numerics):
        """Return why the output is wrong, or None; assert that inputs are unchanged."""
        for name, values in self.before.items():
            assert name == self.output or np.array_equal(self.views[name], values), name
        inputs = {name: values.copy() for name, values in self.before.items()}
        reference = self.problem.reference(inputs, np.random.default_rng(1))
        return self.problem.check({self.output: self.views[self.output]}, reference, numerics).reason


def blas_stand_in(stand_in):
    from kernelmark.kernels.gemm import _cublas

    workspace = np.empty(1, np.uint8)
    return lambda: _cublas._CuBlas(stand_in, 7, array(workspace))


_NAMES = json.loads(conformance.RECORD.read_text())["names"]
_LT = "nvmath.bindings.cublasLt."
#: CUBLAS_OP_T, and the type of alpha and beta by cublasComputeType_t: products in FP32, TF32 and integers.
_T, _SCALES = 1, {68: "f32", 77: "f32", 72: "s32"}
RESULT = np.dtype(
    [
        ("algo", [("data_", "<u8", (8,))]),
        *(("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4"), ("reserved", "<i4", (4,))),
    ]
)
#: The types of the attributes of cuBLASLt's matmul descriptors, layouts and preferences.
_ATTRIBUTES = dict.fromkeys(("TRANSA", "TRANSB", "A_SCALE_MODE", "B_SCALE_MODE", "BATCH_COUNT"), "i4")
_ATTRIBUTES |= {"A_SCALE_POINTER": "u8", "B_SCALE_POINTER": "u8", "STRIDED_BATCH_OFFSET": "i8"}
_ATTRIBUTES |= {"MAX_WORKSPACE_BYTES": "u8", "REDUCTION_SCHEME_MASK": "u4"}
_SETTINGS = {"ID": ("i4", 66), "TILE_ID": ("u4", 20), "STAGES_ID": ("u4", 99), "SPLITK_NUM": ("i4", 3)}
_SETTINGS |= {"REDUCTION_SCHEME": ("u4", 2), "CTA_SWIZZLING": ("u4", 1), "CUSTOM_OPTION": ("u4", 4)}
_SETTINGS |= {"CLUSTER_SHAPE_ID": ("u2", 5)}


class Refused(Exception):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


def _recorded(kind):
    values = {name.rpartition(".")[2]: int(_NAMES[name]) for name in _NAMES if name.startswith(f"{_LT}{kind}.")}
    return enum.IntEnum(kind, values)


class CublasLt:
    """A fake cuBLASLt, which reads and writes attributes at addresses, and lists algorithms in the caller's memory.

    Enumerations have the values of nvmath's bindings, as recorded in tools/data/gpu-signatures.json.
    algorithms: the workspace of each algorithm that the heuristic lists; an algorithm's index is its name.
    made: descriptors, layouts and preferences by handle. status: the status that the heuristic returns.
    ran: the algorithm, workspace and compute type of each product.
    """

    cuBLASLtError = Refused  # noqa: N815  # as in the bindings
    matmul_heuristic_result_dtype = RESULT
    MatmulDescAttribute, MatrixLayoutAttribute = _recorded("MatmulDescAttribute"), _recorded("MatrixLayoutAttribute")
    MatmulPreferenceAttribute = _recorded("MatmulPreferenceAttribute")
    MatmulAlgoConfigAttribute = _recorded("MatmulAlgoConfigAttribute")
    MatmulMatrixScale = _recorded("MatmulMatrixScale")
    MatmulTile = enum.IntEnum("MatmulTile", {"TILE_UNDEFINED": 0, "TILE_128x256": 20})
    MatmulStages = enum.IntEnum("MatmulStages", {"STAGES_UNDEFINED": 0})
    ClusterShape = enum.IntEnum("ClusterShape", {"SHAPE_AUTO": 0, "SHAPE_2x1x1": 5})

    def __init__(self):
        self.algorithms, self.status, self.version = (0, 64), 0, 130002
        self.made = {}
        self.queries = []
        self.ran = []

    def create(self):
        return 7

    def get_version(self):
        return self.version

    def matmul_desc_create(self, compute, scale):
        assert STORED[scale] == _SCALES[compute]
        return self._keep(TRANSA=0, TRANSB=0, compute=compute)

    def matrix_layout_create(self, kind, rows, columns, ld):
        return self._keep(kind=kind, rows=rows, columns=columns, ld=ld)

    def matmul_preference_create(self):
        return self._keep()

    def _set(self, names, handle, attribute, address, nbytes):
        name = names(attribute).name
        kind = np.dtype(_ATTRIBUTES[name])
        assert kind.itemsize == nbytes
        self.made[handle][name] = int(view(address, kind, (1,), (1,))[0])

    matmul_desc_set_attribute = partialmethod(_set, MatmulDescAttribute)
    matrix_layout_set_attribute = partialmethod(_set, MatrixLayoutAttribute)
    matmul_preference_set_attribute = partialmethod(_set, MatmulPreferenceAttribute)

    def matmul_algo_get_heuristic(self, handle, product, *rest):
        a, b, c, d, preference, most, results, returned = rest
        assert (handle, "compute" in self.made[product]) == (7, True)
        assert all("ld" in self.made[layout] for layout in (a, b, c, d))
        self.queries.append(self.made[preference] | {"most": most})
        if self.status:
            raise Refused(self.status)
        table, listed = view(results, RESULT, (most,), (1,)), self.algorithms[:most]
        for number, nbytes in enumerate(listed):
            table["algo"]["data_"][number, 0] = number + 1
            table["workspace_size"][number], table["waves_count"][number] = nbytes, 1.5
        ctypes.c_int.from_address(returned).value = len(listed)

    def get_matmul_algo_config_attribute_dtype(self, attribute):
        return np.dtype(_SETTINGS[self.MatmulAlgoConfigAttribute(attribute).name][0]).type

    def matmul_algo_config_get_attribute(self, algo, attribute, *where):
        address, nbytes, written = where
        kind, value = _SETTINGS[self.MatmulAlgoConfigAttribute(attribute).name]
        number = ctypes.c_uint64.from_address(algo).value
        field = np.array(value + (number - 1 if value == 66 else 0), kind)
        assert field.nbytes == nbytes
        ctypes.memmove(address, field.ctypes.data, nbytes)
        ctypes.c_uint64.from_address(written).value = nbytes

    def matmul(self, handle, product, *rest):
        """Compute D = alpha op(A) op(B) + beta C for each product of a batch."""
        alpha, a, a_is, b, b_is, beta, c, c_is, d, d_is, algo, space, nbytes, stream = rest
        assert (handle, c, c_is, stream) == (7, d, d_is, 5)
        number = ctypes.c_uint64.from_address(algo).value - 1
        assert (nbytes, bool(space)) == (self.algorithms[number], self.algorithms[number] > 0)
        has = self.made[product]
        self.ran.append((number, nbytes, has["compute"]))
        scalar = ctypes.c_float if has["compute"] != 72 else ctypes.c_int32
        factors = [scalar.from_address(address).value for address in (alpha, beta)]
        turn_a, turn_b = (has[name] == _T for name in ("TRANSA", "TRANSB"))
        for A, B, C in zip(*(self._matrices(*each) for each in ((a, a_is), (b, b_is), (c, c_is))), strict=True):
            product_ = self._product((A.T if turn_a else A).astype("f8"), (B.T if turn_b else B).astype("f8"), has)
            scaled = factors[0] * product_
            C[...] = (scaled + factors[1] * C.astype("f8") if factors[1] else scaled).astype(C.dtype)

    def _product(self, a, b, has):
        """Return A B. If the descriptor has scales, apply them to 128 x 128 blocks of A and 128 x 1 blocks of B."""
        (m, k), n = a.shape, b.shape[1]
        if "A_SCALE_MODE" not in has:
            return a @ b
        scales = self.MatmulMatrixScale
        assert (has["A_SCALE_MODE"], has["B_SCALE_MODE"]) == (scales.BLK128x128_32F, scales.VEC128_32F)
        assert (m % 4, n % 4, has["A_SCALE_POINTER"] % 16, has["B_SCALE_POINTER"] % 16) == (0, 0, 0, 0)
        deep, wide = -(-k // 128), -(-m // 128)
        of_a = matrix(has["A_SCALE_POINTER"], "f32", -(-deep // 4) * 4, deep, wide)  # K-major
        of_b = matrix(has["B_SCALE_POINTER"], "f32", n, n, deep)  # N-major
        blocks = np.arange(k) // 128
        return (a * of_a[blocks][:, np.arange(m) // 128].T) @ (b * of_b[:, blocks].T)

    def _matrices(self, pointer, layout):
        layout_ = SimpleNamespace(**self.made[layout])
        dtype = STORED[layout_.kind]
        for i in range(layout_.BATCH_COUNT):
            at = pointer + i * layout_.STRIDED_BATCH_OFFSET * numpy_dtype(dtype).itemsize
            yield matrix(at, dtype, layout_.ld, layout_.rows, layout_.columns)

    def _keep(self, **values):
        handle = 1000 + len(self.made)
        self.made[handle] = values
        return handle
