"""Texts in Markdown: they stay what they are, whoever chose them."""

import io

import pytest

from kernelmark.bench.report.export import WRITERS
from kernelmark.bench.report.layout import TableColumn, in_markdown, paragraph, table
from support.rows import fail, put

EVIL = "<script>alert(1)</script> [click](http://evil.example) | ![x](//a.b) \x1b[31m\n| a | b |"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("gemm/a.fast_one 0.826x [0.493, 0.92]", "gemm/a.fast_one 0.826x [0.493, 0.92]"),
        ("c[0, 1] is 2 & more", "c[0, 1] is 2 & more"),
        ("a|b", r"a\|b"),
        ("a\\|b", r"a\\\|b"),
        ("<b>&amp;&#x3c;", "&lt;b&gt;&amp;amp;&amp;#x3c;"),
        ("[a](b) [c][d]", r"[a\](b) [c\][d]"),
        ("http://a.b HTTPS://c www.d.e", "http&#58;//a.b HTTPS&#58;//c www&#46;d.e"),
        ("two\nlines \x1b[0m", r"two lines \\x1b[0m"),
    ],
)
def test_markup_is_escaped_and_everything_else_stays(text, written):
    assert in_markdown(text) == written


def test_a_table_and_a_paragraph_have_no_markup_of_their_texts():
    drawn = table((TableColumn("a"), TableColumn("b")), [[EVIL, "c"]], "github") + paragraph(EVIL, style="github")
    assert len(drawn.splitlines()) == 3
    assert "<" not in drawn
    assert "](" not in drawn.replace(r"\](", "")
    assert "http:" not in drawn


def test_an_export_has_no_markup_of_the_names_in_it(begun):
    for size in (8, 9):
        put(begun, f"gemm/m{size}n8k8/f32/{EVIL}", f"gemm/some.{EVIL}", suite=EVIL, baseline=f"gemm/some.{EVIL}")
        put(begun, f"gemm/m{size}n8k8/f32/{EVIL}", "gemm/some.base", suite=EVIL)
        fail(begun, f"gemm/m{size}n8k8/f32/{EVIL}", "gemm/some.bad", reason=EVIL)
    out = io.StringIO()
    WRITERS["markdown"](begun, "r1", out)
    text = out.getvalue()
    assert "alert" in text
    assert not set("<\x1b") & set(text)
    assert "](" not in text.replace(r"\](", "")
    for rows in (part.split("\n") for part in text.split("\n\n") if part.startswith("|")):
        assert len({row.replace(r"\|", "").count("|") for row in rows}) == 1
