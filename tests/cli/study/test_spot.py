"""A search over spot machines and on demand, from the catalogue's rate to the report and the recommendation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.cli.app import run
from tradewind.problem import Interruptions

pytestmark = pytest.mark.slow

PRICES = """\
API Name,Provider,CPU,Memory,Category,Price,Spot,Interruptions per Hour
m5.large,aws,2,8,general,0.096,no,
m5.large,aws,2,8,general,0.06,yes,
m5.xlarge,aws,4,16,general,0.192,no,
m5.xlarge,aws,4,16,general,0.08,yes,0.5
"""
JOB = """
name: spot
job: {command: "true"}
space: {instance: {provider: csv, spot: any}}
catalogues: {csv: {path: prices.csv}}
budget: {trials: 4}
searcher: random
abort: false
deploy:
  runner: {use: replay, file: runs.csv, time: seconds, columns: {instance_type: type}}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.csv").write_text(PRICES)
    (tmp_path / "runs.csv").write_text("type,seconds\nm5.large,3000\nm5.xlarge,1600\n")
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) == 0
    return " ".join(capsys.readouterr().out.split())


def searched(job: Path, capsys: pytest.CaptureFixture[str], word: str = "") -> dict[str, Any]:
    """What a search finds, by instance: the offers' observations."""
    job.write_text(JOB + word)
    said(capsys, "tune", "job.yaml", "--quiet", "--fresh")
    lines = said(capsys, "export", "spot", "--format", "records").replace("} {", "}\n{").splitlines()
    trials = [document for line in lines if "configuration" in (document := json.loads(line))]
    return {one["configuration"]["instance"]: one["observation"] for one in trials}


def test_rates_of_the_catalogue_and_of_the_user_decide(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = searched(job, capsys, "  interruptions_per_hour: 0.2\n")
    for instance, rate, price, seconds in (("m5.large/spot", 0.2, 0.06, 3000.0), ("m5.xlarge/spot", 0.5, 0.08, 1600.0)):
        expected = Interruptions(rate).expected_runtime(seconds)
        assert found[instance]["runtime"] == pytest.approx(expected)
        assert found[instance]["objective"] == found[instance]["cost"] == pytest.approx(price * expected / 3600.0)
    assert found["m5.large"]["runtime"] == 3000.0
    report = said(capsys, "report", "spot")
    assert "Use m5.xlarge (spot) of aws" in report
    assert "with its interruptions" in report
    assert "expected with interruptions" in report
    assert "0.5 per hour and machine" in report
    assert "expected with interruptions" in said(capsys, "recommend", "job.yaml")


def test_an_unknown_rate_is_said_to_be_unknown(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = searched(job, capsys)
    assert (found["m5.large/spot"]["runtime"], found["m5.xlarge/spot"]["metrics"]["uninterrupted_runtime"]) == (
        3000.0,
        1600.0,
    )
    assert "is not known (m5.large)" in said(capsys, "recommend", "job.yaml")
    offers = said(capsys, "offers", "--csv", "prices.csv", "--provider", "csv", "--spot")
    assert "m5.large (spot) 2 8 $0.0600 unknown" in offers
    assert "0.5 per hour" in offers


def test_a_run_says_what_it_took_and_what_is_expected(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "run", "job.yaml", "--set", "instance=m5.xlarge/spot")
    assert "succeeded: 26m 40s, $0.0356 this run expected with interruptions: 29m 52s, $0.0398" in found


def test_a_replay_of_the_records_adds_them_once(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = searched(job, capsys)
    assert run(["export", "spot", "--format", "records", "-o", "records.jsonl"]) == 0
    job.write_text(JOB.replace("{use: replay, file: runs.csv, time: seconds, columns: {instance_type: type}}",
                               "{use: replay, records: records.jsonl}"))  # fmt: skip
    said(capsys, "tune", "job.yaml", "--quiet", "--fresh")
    lines = said(capsys, "export", "spot", "--format", "records").replace("} {", "}\n{").splitlines()
    again = [document for line in lines if "configuration" in (document := json.loads(line))]
    assert {one["configuration"]["instance"]: one["observation"]["cost"] for one in again} == {
        name: seen["cost"] for name, seen in first.items()
    }


def test_a_wrong_rate_is_one_line(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB + "  interruptions_per_hour: -1\n")
    assert run(["tune", "job.yaml"]) == 3
    assert "interruptions_per_hour" in capsys.readouterr().err
