"""Long names in little room."""

from __future__ import annotations

from tradewind.reporting.text_layout import shortened_names


def test_names_are_cut_where_that_leaves_them_apart() -> None:
    alike_before = ["NFCORE_RNASEQ.ALIGN.STAR", "NFCORE_RNASEQ.ALIGN.INDEX", "QC"]
    assert shortened_names(alike_before, 12) == {
        "NFCORE_RNASEQ.ALIGN.STAR": "….ALIGN.STAR",
        "NFCORE_RNASEQ.ALIGN.INDEX": "…ALIGN.INDEX",
        "QC": "QC",
    }
    alike_after = ["project_of_the_northern_sky", "diff_of_the_northern_sky"]
    assert list(shortened_names(alike_after, 12).values()) == ["project_of_…", "diff_of_the…"]
    alike_both = ["all_north_of_all_the_sky", "all_north_of_all_the_sea", "see_north_of_all_the_sky"]
    assert list(shortened_names(alike_both, 11).values()) == ["all_n…e_sky", "all_n…e_sea", "see_n…e_sky"]


def test_names_that_fit_stay() -> None:
    assert shortened_names(["one", "two"], 3) == {"one": "one", "two": "two"}
    assert shortened_names([], 3) == {}
