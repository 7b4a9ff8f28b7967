"""CBLAS libraries given by path: those in NumPy and SciPy, and tiny ones that are compiled here."""

import shutil
import subprocess

import pytest
import threadpoolctl

from support.pages import valid
from support.tools import needed

#: A product by loops, without double precision; it uses BETA as beta.
SOURCE = """
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int l = 0; l < k; l++)
                sum += (ta == 111 ? a[i * lda + l] : a[l * lda + i]) * (tb == 111 ? b[l * ldb + j] : b[j * ldb + l]);
            c[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : BETA * c[i * ldc + j]);
        }
}
"""
PROBLEMS = ("gemm/m9n7k5/f32/NT/beta2", "gemm/m9n7k5/f64/TN/alpha2/beta3/batch2/lda+3/ldb+1/ldc+2")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The files of all these libraries."""
    needed(None if shutil.which("gcc") else "gcc is missing")
    folder = tmp_path_factory.mktemp("blas")
    (folder / "tiny.c").write_text(SOURCE)
    for name, beta in (("libtiny", "beta"), ("liboff", "1.0f")):
        words = ["gcc", "-O1", "-shared", "-fPIC", f"-DBETA={beta}", "-o", folder / f"{name}.so.4", folder / "tiny.c"]
        subprocess.run(words, check=True)
    import scipy.linalg  # noqa: F401  # which loads its own OpenBLAS

    bundled = [info["filepath"] for info in threadpoolctl.threadpool_info() if "scipy_openblas" in info["filepath"]]
    assert len(bundled) == 2
    return [*map(str, bundled), str(folder / "libtiny.so.4"), str(folder / "liboff.so.4")]


def test_any_library_with_cblas_contends_by_its_file(called, libraries, tmp_path):
    options = [word for file in libraries for word in ("--blas", file)]
    words = ["--kernels", "gemm/blas.*", "--json", "--db", str(tmp_path / "r.db")]
    done = called("verify", *PROBLEMS, *options, *words)
    rows = {(row["problem"], row["kernel"]): row for row in valid(done.out, "run")["results"]}
    f32, f64 = PROBLEMS
    for name in ("libtiny", "liboff"):
        row = rows[f64, f"gemm/blas.{name}"]
        assert row["status"] == "unsupported"
        assert f"{name}.so.4 has no cblas_dgemm" in row["reason"]
    assert rows[f32, "gemm/blas.libtiny"]["status"] == "ok"
    assert "libtiny.so.4 sha256 " in rows[f32, "gemm/blas.libtiny"]["versions"]
    assert rows[f32, "gemm/blas.liboff"]["status"] == "wrong"
    openblas = [row for (_, kernel), row in rows.items() if "scipy_openblas" in kernel]
    assert [row["status"] for row in openblas] == ["ok"] * 4
    assert all(".so OpenBLAS 0." in row["versions"] for row in openblas)
    absent = called("verify", f32, "--blas", "/nowhere/libblis.so")
    assert "--blas /nowhere/libblis.so: there is no such file" in absent.refusal
