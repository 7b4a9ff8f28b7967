"""Verdicts as text, JSON, CSV and Markdown."""

import csv
import io
import json

from kernelmark.bench.claims import VERDICTS, claims_rows, views


def test_verdicts_go_out_as_text_json_csv_and_markdown(store, registry, put, tmp_path):
    for layout, time_s in (("NT", 2.0), ("NN", 1.0)):
        put("gemm/scipy.sgemm", f"gemm/m1024n2048k26752/f32/{layout}", time_s)
    answers = claims_rows(store, ["r1"], registry)
    text = views.render(answers)
    assert "CONFIRMED  op-t-slower: op_T is slower" in text
    assert text.endswith(f"{len(answers)} claims: 1 confirmed, 1 refuted, {len(answers) - 2} not measured")
    out = io.StringIO()
    views.write_json(answers, out)
    assert [found["verdict"] for found in json.loads(out.getvalue())] == [a.verdict for a in answers]
    views.write_files(tmp_path, answers, "a machine")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "claims.csv").read_text())))
    assert tuple(rows[0]) == views.COLUMNS
    assert {row["id"] for row in rows} == {a.id for a in answers}
    assert set(VERDICTS) >= {row["verdict"] for row in rows}
    names = "r1 gemm/scipy.sgemm gemm/m1024n2048k26752/f32/N{} cold t2"
    assert [row["rows"] for row in rows if row["ratio"]] == [f"{names.format('N')}; {names.format('T')}"] * 2
    lines = (tmp_path / "claims.md").read_text().splitlines()
    assert lines[0] == "# Claims: a machine"
    assert sum(line.startswith("| ") for line in lines) == len(answers) + 1


def test_the_page_says_how_many_rows_a_verdict_is_formed_from(store, registry, put):
    for layout, time_s in (("NT", 2.0), ("NN", 1.0)):
        put("gemm/scipy.sgemm", f"gemm/m1024n2048k26752/f32/{layout}", time_s)
    shown = views.statements(claims_rows(store, ["r1"], registry)).shown
    assert {statement.lines[-1] for statement in shown} == {"2 rows of r1, named in claims.csv"}


def test_a_claim_without_a_number_names_the_rows_that_failed(store, registry, put):
    failed = {"status": "oom", "reason": "needs 3 GB", "time_s_median": None}
    put("gemm/scipy.two_step", "gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1", 1.0, **failed)
    out = io.StringIO()
    views.write_csv(claims_rows(store, ["r1"], registry, only=("beta",)), out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue()))
    assert (row["verdict"], row["run_ids"]) == ("not measured", "r1")
    assert row["rows"] == "r1 gemm/scipy.two_step gemm/m2048n2048k1024/f32/TN/alpha-0.01/beta1 cold t2"
