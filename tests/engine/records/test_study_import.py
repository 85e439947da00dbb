"""Files of records that are taken, and files that are refused without a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.engine.records.study_export import StudyExport
from tradewind.engine.records.study_import import import_study
from tradewind.engine.search_builder import new_study
from tradewind.errors import RecordError
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.base import Change, Store, StudyRow
from tradewind.testing.stores import run, trial

YAML = """
name: mine
job: {command: "true {{ a }}", secrets: {KEY: "env:THE_KEY"}}
space: {a: [1, 2, 3]}
objective: {minimise: cost}
interpret: [exit_code, {use: python, function: "read.py:read"}]
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{tmp_path}/one/s.db")
    return made


@pytest.fixture
def other(tmp_path: Path) -> Store:
    made: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{tmp_path}/two/s.db")
    return made


@pytest.fixture
def study(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> StudyRow:
    """A study of two trials with logs, one of which prints its secret."""
    monkeypatch.setenv("THE_KEY", "hunter2")
    (tmp_path / "read.py").write_text("def read(output):\n    return {}\n")
    made = store.create_study(new_study(parse_spec(YAML, base=tmp_path)))
    runs = []
    for number in range(2):
        folder = tmp_path / "one/runs" / str(number)
        folder.mkdir(parents=True)
        (folder / "stdout").write_text(f"trial {number} has hunter2\n")
        runs.append(replace(run(number), folder=str(folder)))
    store.write(made.id, Change([trial(0, 0.5), trial(1, 0.75)], runs, {"state": "finished"}))
    return made


def write(path: Path, store: Store, study: StudyRow, change: Callable[[list[Any]], object] = lambda _: None) -> Path:
    """Export a study into a file, with changes to its documents."""
    documents = json.loads(json.dumps(list(StudyExport(store, study.id, path.parent, log_bytes=1 << 20).documents())))
    change(documents)
    path.write_text("\n".join(map(json.dumps, documents)))
    return path


def test_a_study_is_made_with_its_job_its_offers_and_its_logs(
    tmp_path: Path, store: Store, other: Store, study: StudyRow
) -> None:
    path = write(tmp_path / "r.jsonl", store, study)
    text = path.read_text()
    assert "hunter2" not in text
    head = json.loads(text.splitlines()[0])
    assert head["files"] == {"read.py": (tmp_path / "read.py").read_text()}
    assert head["versions"]["interpreter python"].startswith("tradewind ")
    assert [offer["provider"] for offer in head["offers"][""]] == ["local"]
    done = import_study(path, other, tmp_path / "two")
    made = done.trials.study
    assert (done.made, done.trials.new, made.name, made.problem_key, made.state) == (
        True, 2, study.name, study.problem_key, "finished",
    )  # fmt: skip
    assert made.owner not in ("", study.owner), "the machines of one are not those of the other"
    folder = Path(other.runs(made.id)[1].folder)
    assert folder.is_relative_to(tmp_path / "two/runs")
    assert (folder / "stdout").read_text() == "trial 1 has ***\n"
    again = import_study(path, other, tmp_path / "two")
    assert (again.made, again.trials.new, again.trials.known, again.trials.study.id) == (False, 0, 2, made.id)
    assert import_study(path, store, tmp_path / "one").trials.known == 2, "into the study that it came from"


def test_passwords_in_addresses_of_a_job_are_not_in_its_records(
    tmp_path: Path, store: Store, other: Store, study: StudyRow
) -> None:
    address = "postgresql://u:pass%21word@h/runs?sslpassword=other%2Bone"
    spec = json.loads(json.dumps(study.spec))
    spec["job"]["callbacks"] = [{"use": "mlflow", "uri": address}]
    spec["job"]["job"]["env"] = {
        "PGPASSWORD": "third-one",
        "MAX_TOKENS": "2048",
        "API_KEY": "env:THE_KEY",
        "DB": address,
    }
    store.write(study.id, Change(study={"spec": spec}))
    Path(store.runs(study.id)[0].folder, "stdout").write_text(
        f"tokens 2048 by {address}: pass!word other+one third-one\n"
    )
    export = StudyExport(store, study.id, tmp_path, log_bytes=1 << 20)
    text = json.dumps(list(export.documents()))
    for word in ("pass!word", "pass%21word", "other+one", "other%2Bone", "third-one"):
        assert word not in text
    assert text.count("postgresql://u:***@h/runs?sslpassword=***") == 3
    assert text.count("2048") == 2
    assert (
        "not in the record: the passwords in the addresses and the environment of the job, which are ***"
        in export.notes
    )
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in json.loads(text)))
    assert import_study(path, other, tmp_path / "two").trials.new == 2


def _foreign_log(documents: list[Any]) -> None:
    documents[2]["runs"][0]["logs"] = {"../../evil": {"text": "x"}}


def _foreign_file(documents: list[Any]) -> None:
    documents[0]["files"] = {"../evil.py": "x"}


REFUSED: list[tuple[Callable[[list[Any]], object], str]] = [
    (lambda docs: docs[2].update(state="splendid"), "record 2: state"),
    (lambda docs: docs[2].update(number=0), "record 2: trial number 0 stands in record 1 already"),
    (lambda docs: docs.append(docs[0]), "record 3 is of a study: only the first one of a file is"),
    (lambda docs: docs[0].update(record=9), "the study's record is of version 9, this program reads 1 and 2"),
    (lambda docs: docs[0]["study"].update(name=""), "the study's record: study.name"),
    (lambda docs: docs[0]["study"]["spec"]["job"].pop("space"), "the job of its study cannot be read: KeyError"),
    (lambda docs: docs[0]["study"].update(spec={}), "the job of its study cannot be read"),
    (lambda docs: docs[0]["study"]["spec"]["job"]["space"]["a"].update(values=[10**400]), "the number is too large"),
    (lambda docs: docs.pop(0), "these records have no job that a study could be made of"),
    (lambda docs: docs[1].pop("record") and docs.pop(0), "record 1 is no record"),
    (_foreign_log, "logs: '../../evil' is no file of a run"),
    (_foreign_file, "would lie outside of the folder"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_refused_leaves_nothing(
    tmp_path: Path,
    store: Store,
    other: Store,
    study: StudyRow,
    change: Callable[[list[Any]], object],
    words: str,
) -> None:
    path = write(tmp_path / "r.jsonl", store, study, change)
    with pytest.raises(RecordError) as caught:
        import_study(path, other, tmp_path / "two", job_folder=tmp_path / "job")
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert other.find_studies() == []
    assert [one for one in (tmp_path / "two").rglob("*") if one.is_file() and "s.db" not in one.name] == []
    assert not (tmp_path / "job").exists()
    assert not (tmp_path / "evil.py").exists()


def test_a_study_with_another_objective_takes_no_trials(
    tmp_path: Path, store: Store, other: Store, study: StudyRow
) -> None:
    path = write(tmp_path / "r.jsonl", store, study)
    wrong = parse_spec(YAML.replace("minimise: cost", "maximise: score"), base=tmp_path)
    with pytest.raises(RecordError, match="minimise cost, and those of study mine are to maximise score"):
        import_study(path, other, tmp_path / "two", other.create_study(new_study(wrong)))
    wider = parse_spec(YAML.replace("[1, 2, 3]", "[1, 2, 3, 4]"), base=tmp_path)
    done = import_study(path, other, tmp_path / "two", other.create_study(new_study(wider)))
    assert done.trials.new == 2
    assert done.notes == ["the records are of another problem than study mine: space differ"]


def test_what_cannot_come_along_is_said(tmp_path: Path, store: Store, study: StudyRow) -> None:
    (tmp_path / "read.py").write_text("KEY = 'hunter2'\n")
    (tmp_path / "one/runs/0/stdout").unlink()
    export = StudyExport(store, study.id, tmp_path, log_bytes=1 << 20)
    head, *_ = export.documents()
    assert head["files"] == {}
    assert export.notes == [
        "not in the record: read.py, which has the value of a secret in it",
        "the logs of 1 trial are not on this machine: its metrics stand alone",
    ]
