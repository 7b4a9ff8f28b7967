"""Figures of a page as PDF: only where they are wanted, and never those of an earlier report."""

from kernelmark.bench.report.page import write_report
from support.rows import put


def test_a_page_without_pdfs_links_to_none_and_leaves_none_of_an_earlier_report(begun, tmp_path) -> None:
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.other", speedup=2.0)
    figures = tmp_path / "figures"
    page = write_report(begun, "r1", tmp_path)
    assert list(figures.glob("*.pdf"))
    assert ">PDF</a>" in page.read_text()
    page = write_report(begun, "r1", tmp_path, pdf=False)
    assert list(figures.glob("*.svg"))
    assert not list(figures.glob("*.pdf"))
    assert ">PDF</a>" not in page.read_text()
    assert ">SVG</a>" in page.read_text()
