"""Tables of trials as other tools write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.engine.records.ray_results import is_ray_results, read_ray_trials
from tradewind.engine.records.trial_tables import read_csv_trials
from tradewind.errors import RecordError


def test_tables_of_other_tools_are_read_as_they_are(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    for text in (
        "number,state,key,objective,config.x,metric.loss,spent\n0,succeeded,k,1,2.5,7,9\n",
        "trial_id,config/x,loss\na,2.5,7\n",
        "number,value,params_x,user_attrs_note,state\n0,7,2.5,hi,COMPLETE\n",
        "\ufeffx,loss\n2.5,7\n",
    ):
        table.write_text(text, encoding="utf-8")
        (found,) = read_csv_trials(table, ["x", "y"], ["loss"])
        assert (found.values, found.metrics, found.state) == ({"x": "2.5"}, {"loss": 7.0}, "succeeded")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "its first line names no parameter of the job"),
        ("", "it is empty"),
        ("x,state\n1,splendid\n", "line 2: there is no state 'splendid'"),
        ("x,loss,runtime\n1,0,2\n1,0,-3\n", "line 3: runtime is '-3', which is no number of 0 or more"),
        ("x,loss,cost\n1,0,cheap\n", "line 2: cost is 'cheap'"),
        ('x,loss\n1,"0,25"\n', "line 2: loss is '0,25', which is no number (write it with a point)"),
        ("x,loss\n1,0,25\n", "line 2: it has 3 cells, and the first line 2"),
        ("x,loss,x\n1,2,3\n", "its first line names x 2 times (keep one of these columns)"),
        ("x,Verlust\n1,2\n", "its first line names no loss, the objective of the job (its metrics: Verlust)"),
        ("x,loss,cost (EUR)\n1,2,3\n", "the column 'cost (EUR)' is in EUR (costs are in USD)"),
        ("x,loss,runtime (MB)\n1,2,3\n", "the column 'runtime (MB)': MB is no unit of time (s, min, h)"),
        ("x,loss,started\n1,2,yesterday\n", "line 2: started is 'yesterday', which is no date and time"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    with pytest.raises(RecordError) as refused:
        list(read_csv_trials(table, ["x"], ["loss"]))
    assert words in str(refused.value)


def test_what_is_no_text_and_no_file_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    for content in (b"x,loss\n1,\xff\xfe\n", b"\xfe,x\n"):
        table.write_bytes(content)
        with pytest.raises(RecordError, match=r"it is not UTF-8 \(save it as UTF-8\)"):
            list(read_csv_trials(table, ["x"], ["loss"]))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RecordError, match="it cannot be read: Is a directory"):
        list(read_csv_trials(tmp_path / "folder.csv", ["x"], ["loss"]))


def test_a_folder_of_ray_tune_that_is_damaged(tmp_path: Path) -> None:
    assert not is_ray_results(tmp_path)
    (tmp_path / "t1").mkdir()
    (tmp_path / "t1" / "result.json").write_text("nonsense\n")
    assert is_ray_results(tmp_path)
    with pytest.raises(RecordError, match=r"t1/result\.json has no result"):
        list(read_ray_trials(tmp_path))
    (tmp_path / "t1" / "result.json").write_text('{"loss": 1}\n')
    with pytest.raises(RecordError, match=r"t1: params\.json cannot be read"):
        list(read_ray_trials(tmp_path))
    (tmp_path / "t1" / "params.json").write_text('{"x": 1, "opt": {"lr": 0.1}}')
    (found,) = read_ray_trials(tmp_path)
    assert found.values == {"x": 1, "opt/lr": 0.1}
    (tmp_path / "experiment_state-1.json").write_text('{"trial_data": [7]}')
    with pytest.raises(RecordError, match=r"experiment_state-1\.json is of a version that is not known"):
        list(read_ray_trials(tmp_path))


def test_columns_that_are_named_in_words_are_parameters_and_metrics(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("learning rate,batch_size,batch-size,test accuracy,n\n0.1,4,8,0.9,3\n")
    (found,) = read_csv_trials(table, ["learning_rate", "batch_size"], ["test_accuracy"])
    assert found.values == {"learning_rate": "0.1", "batch_size": "4"}
    assert found.metrics == {"test_accuracy": 0.9, "batch-size": 8.0, "n": 3.0}


@pytest.mark.parametrize(
    "content",
    [
        "x;loss;runtime (min)\n1,5;-2,5;1,5\n",
        "sep=;\r\nx;loss;runtime\r\n1,5;-2,5;90\r\n",
        "X\tLoss\truntime\n1.5\t-2.5\t1m 30s\n",
        "\ufeffx [m],note,loss (nats),runtime (s)\n1.5,,-2.5,90 s\n\n",
        "run_id,status,params.x,metrics.loss,metrics.runtime,runtime\nab,FINISHED,1.5,-2.5,90,90\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tables_as_spreadsheets_and_trackers_write_them(content: str, encoding: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(content.lstrip("\ufeff").encode(encoding) if encoding == "utf-16" else content.encode())
    (found,) = read_csv_trials(table, ["x"], ["loss"])
    assert {name: float(text) for name, text in found.values.items()} == {"x": 1.5}
    assert (found.metrics["loss"], found.runtime, found.state) == (-2.5, 90.0, "succeeded")


def test_a_thousand_with_points_and_a_date(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("x;loss;cost [USD];started;ended\n1;1.234.567,25;$0.12;2026-07-31T12:00:00+02:00;n/a\n")
    (found,) = read_csv_trials(table, ["x"], ["loss"])
    assert (found.metrics["loss"], found.cost, found.started, found.ended) == (1234567.25, 0.12, 1785492000.0, None)


def test_a_table_of_ray_tune_whose_columns_changed(tmp_path: Path) -> None:
    (tmp_path / "t1").mkdir()
    (tmp_path / "t1" / "progress.csv").write_text(
        "loss,trial_id,config/x\n3,12345678,1.5\naccuracy,loss,trial_id,config/x\n,2,12345678,1.5\n0.5,1,12345678,1.5"
    )
    (found,) = read_ray_trials(tmp_path)
    assert (found.run_id, found.values, found.metrics) == ("ray-12345678", {"x": 1.5}, {"loss": 2.0})


def test_a_trial_of_ray_tune_that_ended_well_at_another_attempt(tmp_path: Path) -> None:
    for name, status in (("train_5_01_x=1", "TERMINATED"), ("train_5_02_x=2", "ERROR"), ("train_5_03_x=3", "PAUSED")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "params.json").write_text('{"x": 1}')
        (folder / "result.json").write_text('{"loss": NaN}\n' if status == "TERMINATED" else "")
        (folder / "error.txt").write_text("Traceback\n  ...\nMemoryError: full\n\n")
    entries = [[f'{{"trial_id": "5_0{at}", "status": "{one}"}}', ""] for at, one in ((1, "TERMINATED"), (2, "ERROR"))]
    entries.append(['{"trial_id": "5_03", "status": "PAUSED"}', ""])
    (tmp_path / "experiment_state-1.json").write_text(json.dumps({"trial_data": entries}))
    found = list(read_ray_trials(tmp_path))
    assert [(one.run_id, one.state, one.reason) for one in found] == [
        ("ray-5_01", "succeeded", ""),
        ("ray-5_02", "failed", "MemoryError: full"),
        ("ray-5_03", "unfinished", "Ray Tune says PAUSED"),
    ]
