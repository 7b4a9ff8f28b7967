"""Writes the suites that are made from lists: of DeepBench's problems (tools/data/) and of the layers of networks.

`python tools/suites.py` writes bench/plan/suites/; tests/plan compares what lies there with what it would write.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import conv_suites
import train_suites
from suite_text import Row, read, table

FOLDER = Path(__file__).resolve().parent.parent / "bench" / "plan" / "suites"
#: Rows of the recurrent matrix for each hidden unit.
GATES = {"vanilla": 1, "gru": 3, "lstm": 4}
Case = tuple[str, tuple[int, int, int]]  # layout, (m, n, k), row-major


def deepbench_gemm_case(row: Row) -> Case:
    """The row-major product on the same buffers as DeepBench's call, which is column-major.

    A column-major matrix is, row-major, its transpose; so C = op(A) op(B) is C^T = op(B)^T op(A)^T with the operands
    in the other order, m and n swapped and each operand's own flag kept: T,N (m, n, k) becomes NT (n, m, k).
    """
    return row["b_t"] + row["a_t"], (int(row["n"]), int(row["m"]), int(row["k"]))


def deepbench_gemm_cases(rows: Iterable[Row]) -> Counter[Case]:
    """Each case once, with the number of rows that have it, in the order of the file."""
    return Counter(map(deepbench_gemm_case, rows))


def deepbench_rnn_cases(rows: Iterable[Row]) -> Counter[Case]:
    """The recurrent GEMMs of every row: forward, and in training the gradient of the data; counted in time steps."""
    cases: Counter[Case] = Counter()
    for row in rows:
        hidden, batch = int(row["hidden"]), int(row["batch"])
        gates = GATES[row["cell"]] * hidden
        cases["NT", (batch, gates, hidden)] += int(row["timesteps"])
        if row["set"] == "training":
            cases["NN", (batch, hidden, gates)] += int(row["timesteps"])
    return cases


def deepbench_gemm() -> str:
    """The text of deepbench-gemm.toml."""
    rows = read("deepbench_gemm.csv")
    head = f"""\
        # Made by tools/suites.py from tools/data/deepbench_gemm.csv; edit those.
        title = "DeepBench GEMM: its {len(rows)} problems of training, server and device inference"
        source = "baidu-research/DeepBench, code/kernels/gemm_problems.h (the sets of training, server and device)"

        # DeepBench calls a column-major BLAS with (m, n, k, a_t, b_t). Here stands the row-major product on the same
        # buffers, C^T = op(B)^T op(A)^T: m and n change places, and the layout is b_t, then a_t. Its T,N is our NT.
        # DeepBench's program for NVIDIA passes alpha = beta = 1; here it is the plain product, as in the other suites.
        # Counts: how many of its rows have the shape.
        """
    return "\n".join([textwrap.dedent(head).rstrip(), *sweeps(deepbench_gemm_cases(rows))])


def deepbench_rnn() -> str:
    """The text of deepbench-rnn.toml."""
    rows = read("deepbench_rnn.csv")
    head = f"""\
        # Made by tools/suites.py from tools/data/deepbench_rnn.csv; edit those.
        title = "DeepBench RNN: the GEMMs of a time step of its {len(rows)} recurrent layers"
        source = "baidu-research/DeepBench, code/kernels/rnn_problems.h; which GEMMs: code/nvidia/rnn_bench.cu"

        # A layer of h units holds a recurrent matrix R of g*h x h, row-major: g = 1 (vanilla), 3 (gru), 4 (lstm).
        # NT: forward, the gates of a step are H R^T (m = batch, n = g*h, k = h).
        # NN: gradient of the data, dH = dG R (m = batch, n = h, k = g*h); for the rows of training alone, as there.
        # DeepBench takes CUDNN_SKIP_INPUT, so no GEMM of the inputs, and leaves out the gradient of the weights.
        # Counts: time steps, summed over the rows that have the shape.
        """
    return "\n".join([textwrap.dedent(head).rstrip(), *sweeps(deepbench_rnn_cases(rows))])


def sweeps(cases: Counter[Case]) -> Iterator[str]:
    """A [[sweep]] table for each layout, f32."""
    for layout in dict.fromkeys(layout for layout, _ in cases):
        chosen = Counter({sizes: count for (own, sizes), count in cases.items() if own == layout})
        yield table("gemm", chosen, None, dtype="f32", layout=layout)
    yield ""


SUITES = {
    "deepbench-gemm.toml": deepbench_gemm,
    "deepbench-rnn.toml": deepbench_rnn,
    **conv_suites.SUITES,
    **train_suites.SUITES,
}

if __name__ == "__main__":
    for name, text in SUITES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")
