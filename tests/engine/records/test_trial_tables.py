"""Tables of trials as other tools write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.engine.records.trial_tables import is_ray_results, read_csv_trials, read_ray_trials
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
        (found,) = read_csv_trials(table, ["x", "y"], "loss")
        assert (found.values, found.metrics, found.state) == ({"x": "2.5"}, {"loss": 7.0}, "succeeded")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "its first line names no parameter of the job"),
        ("", "its first line names no parameter of the job"),
        ("x,state\n1,splendid\n", "line 2: there is no state 'splendid'"),
        ("x,runtime\n1,2\n1,-3\n", "line 3: runtime is '-3', which is no number of 0 or more"),
        ("x,cost\n1,cheap\n", "line 2: cost is 'cheap'"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    with pytest.raises(RecordError) as refused:
        list(read_csv_trials(table, ["x"], "loss"))
    assert words in str(refused.value)


def test_what_is_no_text_and_no_file_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    for content in (b"x,loss\n1,\xff\xfe\n", b"\xff\xfe,x\n"):
        table.write_bytes(content)
        with pytest.raises(RecordError, match=r"it is not UTF-8 \(save it as UTF-8\)"):
            list(read_csv_trials(table, ["x"], "loss"))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RecordError, match="it cannot be read: Is a directory"):
        list(read_csv_trials(tmp_path / "folder.csv", ["x"], "loss"))


def test_a_folder_of_ray_tune_that_is_damaged(tmp_path: Path) -> None:
    assert not is_ray_results(tmp_path)
    (tmp_path / "t1").mkdir()
    (tmp_path / "t1" / "result.json").write_text("nonsense\n")
    assert is_ray_results(tmp_path)
    with pytest.raises(RecordError, match=r"t1/result\.json has no result"):
        list(read_ray_trials(tmp_path, []))
    (tmp_path / "t1" / "result.json").write_text('{"loss": 1}\n')
    with pytest.raises(RecordError, match=r"t1: params\.json cannot be read"):
        list(read_ray_trials(tmp_path, []))
    (tmp_path / "t1" / "params.json").write_text('{"x": 1, "opt": {"lr": 0.1}}')
    (found,) = read_ray_trials(tmp_path, [])
    assert found.values == {"x": 1, "opt/lr": 0.1}
    (tmp_path / "experiment_state-1.json").write_text('{"trial_data": [7]}')
    with pytest.raises(RecordError, match=r"experiment_state-1\.json is of a version that is not known"):
        list(read_ray_trials(tmp_path, []))


def test_columns_that_are_named_in_words_are_parameters_and_metrics(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("learning rate,batch_size,batch-size,test accuracy,n\n0.1,4,8,0.9,3\n")
    (found,) = read_csv_trials(table, ["learning_rate", "batch_size"], "test_accuracy")
    assert found.values == {"learning_rate": "0.1", "batch_size": "4"}
    assert found.metrics == {"test_accuracy": 0.9, "batch-size": 8.0, "n": 3.0}
