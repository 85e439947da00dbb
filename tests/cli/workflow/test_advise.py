"""``tradewind workflow advise`` as people and programs see it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.workflow.advice.samples import drawn

from tradewind.cli.app import run
from tradewind.workflow.files import open_platform, read_plan
from tradewind.workflow.schedule import check

pytestmark = pytest.mark.slow

PRICES = """\
API Name,Provider,CPU,Memory,Category,Price,Family
small,here,2,4,general,0.10,old
large,here,8,16,general,0.45,old
quick,there,4,8,compute,0.60,new
credit,here,2,4,burstable,0.01,old
"""


def advise(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    path, _ = drawn(folder, 1)
    (folder / "prices.csv").write_text(PRICES)
    given = ["workflow", "advise", str(path), "--csv", str(folder / "prices.csv"), "--max-vms", "6", *words]
    assert run(given) == 0
    said = capsys.readouterr()
    return said.out, said.err


def document(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(advise(folder, capsys, *words, "--json", "--refine", "0")[0])
    return found


def test_the_choice_is_shown_with_its_figures_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, vms = tmp_path / "plan.json", tmp_path / "vms.yaml"
    words = ("--deadline", "10m", "--budget", "$2", "--refine", "0", "--out", str(plan), "--vms-out", str(vms))
    text, _ = advise(tmp_path, capsys, *words)
    for word in ("makespan", "lower bound", "serial time", "utilisation", "cost", "for one execution"):
        assert word in text
    assert "is the cheapest set found that ends within 10m 00s and for at most $2.00." in text
    assert "every type counts as speed 1" in text
    assert "1m 00s of boot included" in text
    assert "too slow" in text
    written = read_plan(plan)
    check(written.flow, written.platform, written.schedule)
    assert written.schedule.makespan <= 600.0
    assert open_platform(str(vms)) == written.platform
    assert run(["report", "advise-drawn1"]) == 0
    assert "advise-drawn1" in capsys.readouterr().out


def test_figures_are_whole_in_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.cli.workflow.common.width", lambda: 200)
    wide, _ = advise(tmp_path, capsys, "--deadline", "10m", "--refine", "0")
    monkeypatch.setattr("tradewind.cli.workflow.common.width", lambda: 62)
    narrow, _ = advise(tmp_path, capsys, "--deadline", "10m", "--refine", "0")

    def table(text: str) -> list[str]:
        lines = text.splitlines()
        first = next(place for place, line in enumerate(lines) if line.split()[:1] == ["VMs"])
        return lines[first : lines.index("", first)]

    assert table(wide)[0].split() == ["VMs", "where", "slots", "makespan", "gap", "utilisation", "cost"]
    assert "utilisation" not in table(narrow)[0]
    assert max(map(len, table(narrow))) <= 62
    assert [line.startswith("*") for line in table(narrow)].count(True) == 1
    costs = [re.findall(r"\$[\d.]+", line) for line in table(wide)]
    assert [re.findall(r"\$[\d.]+", line) for line in table(narrow)] == costs
    assert "…" not in "".join(table(wide))


def test_json_holds_what_the_screen_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(tmp_path, capsys, "--deadline", "10m")
    best = found["best"]
    assert best["makespan"] <= 600
    assert best["fits"]
    assert found["proven"]
    assert found["sets"] == 18
    assert best in found["front"]
    hourly = best["price_per_hour"] * best["count"]
    assert best["cost"] == pytest.approx(-(-best["makespan"] // 1) / 3600 * hourly, rel=1e-6)


def test_speeds_and_filters_change_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = document(tmp_path, capsys, "--deadline", "10m")
    assert usual["best"]["type"] in ("small", "large")
    assert "credit" not in {row["type"] for row in usual["front"]}
    fast = document(tmp_path, capsys, "--deadline", "10m", "--speed", "new=20")
    assert (fast["best"]["type"], fast["best"]["speed"]) == ("quick", 20.0)
    only = document(tmp_path, capsys, "--deadline", "10m", "--type", "large")
    assert only["best"]["type"] == "large"
    asked_for = document(tmp_path, capsys, "--deadline", "10m", "--category", "burstable")
    assert asked_for["best"]["type"] == "credit"
    single = document(tmp_path, capsys, "--slots", "1", "--boot", "0", "--billing-minimum", "0", "--type", "small")
    assert (single["best"]["slots"], single["best"]["count"]) == (1, 1)
    assert single["best"]["makespan"] == pytest.approx(single["best"]["serial"])


MIXED = """\
API Name,Provider,CPU,Memory,Category,Price,Family
small,here,1,4,general,0.05,old
quick,here,2,8,compute,0.36,new
"""


def test_a_set_of_two_types_is_shown_written_and_left_out_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.csv").write_text(MIXED)
    csv = ("--csv", str(tmp_path / "two.csv"), "--provider", "here", "--speed", "new=2.5", "--boot", "20s")
    vms, plan = tmp_path / "vms.yaml", tmp_path / "plan.json"
    words = (*csv, "--deadline", "200s", "--refine", "0")
    text, _ = advise(tmp_path, capsys, *words, "--out", str(plan), "--vms-out", str(vms))
    assert text.splitlines()[1].startswith("take 1 x quick + 3 x small (here)")
    assert "The cheapest set of one type found is" in text
    assert "sets of 2 to 2 types" not in text
    assert "sets of 2 types" in text
    written = read_plan(plan)
    check(written.flow, written.platform, written.schedule)
    assert {vm.kind for vm in written.platform.vms} == {"quick", "small"}
    assert open_platform(str(vms)) == written.platform
    both, single = (document(tmp_path, capsys, *words, "--mix", mix) for mix in ("2", "1"))
    assert both["best"]["cost"] == pytest.approx(0.024933332, abs=1e-9)
    assert single["best"]["cost"] > 1.15 * both["best"]["cost"]
    assert [len(found["best"]["machines"]) for found in (both, single)] == [2, 1]
    assert (single["mixed"]["sets"], both["mixed"]["sets"]) == (0, 15)


def test_only_burstable_offers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = drawn(tmp_path, 1)
    (tmp_path / "prices.csv").write_text(PRICES.splitlines()[0] + "\ncredit,here,2,4,burstable,0.01,old\n")
    assert run(["workflow", "advise", str(path), "--csv", str(tmp_path / "prices.csv")]) == 4
    assert "only burstable types are within the query" in capsys.readouterr().err


MEASURED = """\
{"format": "tradewind-results-1", "workflow": "two", "tasks": [
{"task": "a", "activity": "a", "kind": "small", "speed": 1, "seconds": 1000, "expected": 100, "runtime": 100},
{"task": "b1", "activity": "b", "kind": "small", "speed": 1, "seconds": 50, "expected": 100, "runtime": 100}]}
"""


@pytest.mark.parametrize("searcher", ["bounds", "random"])
def test_the_search_counts_with_measured_run_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], searcher: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(
        "name: two\ntasks:\n  a: {runtime: 100s}\n"
        "  b1: {runtime: 100s, activity: b, after: [a]}\n  b2: {runtime: 100s, activity: b, after: [a]}\n"
    )
    Path("prices.csv").write_text(
        "API Name,Provider,CPU,Memory,Category,Price,Family\nsmall,here,1,4,general,0.1,old\n"
    )
    Path("run").mkdir()
    Path("run/results.json").write_text(MEASURED)
    words = ["workflow", "advise", "w.yaml", "--csv", "prices.csv", "--max-vms", "1", "--boot", "0s", "--refine", "0"]
    words += ["--searcher", searcher, "--trials", "1"]
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["makespan"] == 300.0
    assert run([*words, "--measured", "run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["best"]["makespan"] == 1100.0
    assert run([*words, "--measured", "run", "--out", "plan.json"]) == 0
    said = capsys.readouterr().out
    assert "Run times as measured: a 1m 40s -> 16m 40s, b 3m 20s -> 1m 40s in sum (2 tasks)." in said
    assert read_plan(Path("plan.json")).schedule.makespan == 1100.0
    # The trials have them as well: each is a run of the study in the store.
    assert run(["report", "advise-two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["runtime"] == 1100.0
