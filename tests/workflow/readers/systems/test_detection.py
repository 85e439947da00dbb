"""Formats that are not read: the list of those that are, and advice for the programs of known systems."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.files import KNOWN, read_workflow


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flow.wdl", "version 1.0\nworkflow x {\n  call y { input: a = 1 }\n}\n"),
        ("flow.ga", '{"a_galaxy_workflow": "true", "steps": {}}'),
        ("flow.txt", "Some words that are no workflow.\n"),
        ("flow.py", "from airflow import DAG\ndag = DAG('x')\n"),
        ("flow.csv", "a,b,c\n1,2,3\n"),
        ("flow.dot", "digraph g { a -> b }"),
        ("flow.bin", "\x00\x01\x02"),
    ],
)
def test_unknown_formats_get_the_list_of_known_ones(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(WorkflowError) as caught:
        read_workflow(tmp_path / name)
    for each in ("Nextflow", "DAGMan", "Snakemake", "Makeflow", "CWL", "STG"):
        assert each in (caught.value.hint or "")
    assert "\n" not in str(caught.value)


def test_known_formats_are_those_of_all_readers() -> None:
    for each in ("DAX", "WfFormat", "Pegasus 5", "own YAML", "plan", "Nextflow", "DAGMan"):
        assert each in KNOWN


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("nextflow.enable.dsl=2\nprocess A {\n  script:\n  'ls'\n}\n", "-with-trace -with-dag dag.dot"),
        ("rule all:\n    input: 'a'\n", "snakemake --dag > dag.dot"),
        ("pegasus: 5.0.4\nreplicas: []\n", "give the workflow that it belongs to"),
    ],
)
def test_other_files_of_known_systems_get_advice(tmp_path: Path, text: str, advice: str) -> None:
    (tmp_path / "flow").write_text(text)
    with pytest.raises(WorkflowError) as caught:
        read_workflow(tmp_path / "flow")
    assert advice in (caught.value.hint or "")


@needs_datasets
def test_every_real_file_is_read_or_refused_in_one_line() -> None:
    for path in sorted((DATASETS / "formats").rglob("*")):
        if path.is_file():
            try:
                assert len(read_workflow(path)) > 0
            except WorkflowError as error:
                assert "\n" not in str(error), path
