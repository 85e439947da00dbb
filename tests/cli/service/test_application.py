"""``tradewind application`` and ``tradewind backend``, on the server's machine and from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.service.applications.past_requests import DOCUMENT, add_runs

from tradewind.cli.app import run
from tradewind.cli.study.recommend import _show_proposal
from tradewind.client import ProposalInfo
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings


@pytest.fixture(autouse=True)
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    """What a server of the store that the commands use would see."""
    url = f"sqlite:///{tmp_path}/service.db"
    monkeypatch.setenv("TRADEWIND_STORE", url)
    with closing(open_context(ServiceSettings(), url, tmp_path / "home")) as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An application."""
    path = tmp_path / "solver.yaml"
    path.write_text(DOCUMENT)
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints."""
    assert run(list(words)) == code, capsys.readouterr().err
    printed = capsys.readouterr()
    return printed.err if code else printed.out


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(said(capsys, *words, "--json"))


@pytest.mark.slow
def test_from_a_file_to_a_form_and_away(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert said(capsys, "application", "list").startswith("There is no application yet")
    assert "solver can be registered; fields: size, steps" in said(capsys, "application", "check", str(file))
    assert document(capsys, "application", "list") == [], "checking registers nothing"
    assert "solver@1 is registered for everybody" in said(capsys, "application", "register", str(file))
    file.write_text(DOCUMENT.replace("default: 10", "default: 20"))
    assert document(capsys, "application", "register", str(file))["version"] == 2
    assert "solver@2" in said(capsys, "application", "list")
    shown = said(capsys, "application", "show", "solver")
    assert "solver@2: Solver" in shown
    assert "1..100000" in shown
    assert "chosen for each run: instance, nodes, threads; minimise cost" in shown
    assert document(capsys, "application", "show", "solver@1")["schema"]["properties"]["steps"]["default"] == 10
    assert said(capsys, "application", "show", "solver@1", "--yaml").rstrip("\n") == DOCUMENT.rstrip("\n")
    said(capsys, "application", "retire", "solver@2")
    assert "solver@1" in said(capsys, "application", "list")
    said(capsys, "application", "retire", "solver")
    assert document(capsys, "application", "list") == []
    assert document(capsys, "application", "list", "--all")[0]["state"] == "retired"


def test_one_of_a_tenant(capsys: pytest.CaptureFixture[str], context: Context, file: Path) -> None:
    refused = said(capsys, "application", "register", str(file), "--tenant", "physics", code=16)
    assert "there is no tenant 'physics'" in refused
    context.accounts.add_user("ann", tenant="physics")
    assert "for physics" in said(capsys, "application", "register", str(file), "--tenant", "physics")
    assert document(capsys, "application", "show", "solver", "--tenant", "physics")["tenant"] == "physics"
    assert "physics" in said(capsys, "application", "list")


@pytest.mark.parametrize(
    ("old", "new", "words", "code"),
    [
        ("type: integer", "type: integr", "solver.yaml:13: application.fields.size.type", 3),
        ("--size={{ size }}", "--size={{ sise }}", "solver.yaml:3: job.command", 3),
        ("application:", "aplication:", "solver.yaml:1: there is no block 'application'", 3),
        ("title: Solver", "backend: cloud", "there is no backend 'cloud'", 16),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], file: Path, old: str, new: str, words: str, code: int
) -> None:
    file.write_text(DOCUMENT.replace(old, new, 1))
    for command in ("check", "register"):
        refused = said(capsys, "application", command, str(file), code=code)
        assert words in refused
        assert refused.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("catalogues: {local: {price_per_vcpu: 1}}", "only an administrator may set catalogues"),
        ("callbacks: [tensorboard]", "callbacks: the server would connect to trackers and write files"),
        ("callbacks: {use: mlflow, uri: 'http://10.0.0.1'}", "the server would connect to trackers"),
    ],
)
def test_what_ordinary_users_may_not_register(
    capsys: pytest.CaptureFixture[str], file: Path, more: str, words: str
) -> None:
    file.write_text(f"{DOCUMENT}{more}\n")
    said(capsys, "application", "check", str(file))
    refused = said(capsys, "application", "check", str(file), "--as-user", code=3)
    assert words in refused


def test_files_and_names_that_are_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "there is no file" in said(capsys, "application", "register", str(tmp_path / "none.yaml"), code=3)
    assert "there is no application 'solver'" in said(capsys, "application", "show", "solver", code=16)
    assert "there is no application 'solver'" in said(capsys, "application", "retire", "solver", code=16)


@pytest.mark.slow
def test_a_proposal(capsys: pytest.CaptureFixture[str], context: Context, file: Path) -> None:
    said(capsys, "application", "register", str(file))
    first = said(capsys, "application", "propose", "solver", "-p", "size=500", "--top", "2")
    assert "nothing is known of solver yet" in first
    assert first.count("instance=") == 2
    user = context.accounts.add_user("ann", tenant="physics")
    ann = Principal(user.id, "ann", "user", "physics")
    row = context.applications.get(ann, "solver")
    add_runs(context, ann, row, [{"size": size, "steps": 10} for size in range(100, 2000, 100)])
    found = document(capsys, "application", "propose", "solver", "-p", "size=500", "--tenant", "physics")
    assert found["runs"] == 19
    assert found["candidates"][0]["cost_low"] < found["candidates"][0]["cost"]
    table = said(capsys, "application", "propose", "solver", "-p", "size=500", "--tenant", "physics")
    assert "19 runs of solver, 1 of them with these job parameters" in table
    refused = said(capsys, "application", "propose", "solver", "-p", "size=0", code=3)
    assert "size: 0 is below 1" in refused


@pytest.mark.slow
def test_a_proposal_names_the_metric_that_it_is_for(
    capsys: pytest.CaptureFixture[str], context: Context, file: Path
) -> None:
    rated = DOCUMENT.replace("minimise: cost", "maximise: rate")
    file.write_text(f"{rated}interpret: {{use: json_lines, metrics: [rate]}}\n")
    said(capsys, "application", "register", str(file))
    user = context.accounts.add_user("ann", tenant="physics")
    ann = Principal(user.id, "ann", "user", "physics")
    row = context.applications.get(ann, "solver")
    sizes = [{"size": size, "steps": 10} for size in range(100, 1000, 100)]
    add_runs(context, ann, row, sizes, metric=lambda given, chosen: 7.0 * float(chosen["threads"]))
    found = document(capsys, "application", "propose", "solver", "-p", "size=500", "--tenant", "physics")
    assert (found["metric"], found["goal"]) == ("rate", "maximise")
    assert found["candidates"][0]["objective"] == pytest.approx(28.0, rel=0.3)
    table = said(capsys, "application", "propose", "solver", "-p", "size=500", "--tenant", "physics")
    assert table.split()[3:5] == ["rate", "90"]
    _show_proposal(ProposalInfo.from_json(found))
    shown = capsys.readouterr().out
    assert "rate" in shown.splitlines()[1]
    assert f"{found['candidates'][0]['objective']:.4g}" in shown


def test_backends(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text("title: Containers\nown_code: true\ndeploy: {runner: {use: docker, network: none}}\n")
    made = said(capsys, "backend", "set", "cloud", str(file))
    assert made == "cloud: docker, open to everybody, runs programs of everybody\n"
    found = {one["name"]: one for one in document(capsys, "backend", "list")}
    assert found["cloud"]["deploy"]["runner"] == {"use": "docker", "network": "none"}
    assert found["local"]["own_code"] is False
    assert "administrators" in said(capsys, "backend", "list")
    file.write_text("deploy: {runner: dokcer}\n")
    refused = said(capsys, "backend", "set", "cloud", str(file), code=3)
    assert "cloud.yaml:1: deploy.runner: there is no runner named 'dokcer'" in refused
    said(capsys, "backend", "remove", "cloud")
    assert "there is no backend 'cloud'" in said(capsys, "backend", "remove", "cloud", code=16)
