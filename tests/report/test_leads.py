"""Leads that are formed at once: the same as those that are asked for one by one."""

from kernelmark.bench.report.contest import contests, know_leads
from support.rows import put

NT, NN = "gemm/m8n9k7/f32/NT", "gemm/m8n9k7/f32/NN"


def test_leads_that_are_formed_at_once_are_those_that_are_asked_for(begun):
    rows = [
        put(begun, NT, "gemm/some.one", 2e-3, job="first", threads=1),
        put(begun, NT, "gemm/some.two", 1e-3, job="first", threads=1),  # faster, and recorded later
        put(begun, NT, "gemm/some.two", 4e-3, job="second", threads=2),  # against `one` of another job
        put(begun, NN, "gemm/some.two", 1e-3, job="first", threads=1),
        put(begun, NN, "gemm/some.one", 2e-3, job="first", threads=1),
        put(begun, "gemm/m1n1k1/f32/NN", "gemm/some.one", threads=1),  # alone
    ]
    asked = [c.lead for c in contests(rows, begun)]
    found = contests(rows, begun)
    know_leads(found, begun, "r1")
    begun.close()  # nothing is asked for any more
    assert [c.lead for c in found] == asked
    assert [lead and lead.in_turn for lead in asked] == [True, False, True, None]
