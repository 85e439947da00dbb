"""Python functions that are handed over to a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tradewind
from tradewind import plugins, tunable
from tradewind.cli.app import run
from tradewind.errors import InputError
from tradewind.problem import TrialState
from tradewind.store.clusters.cluster_store import ClusterStore
from tradewind.tenancy.submission.function_jobs import function_job, load_function
from tradewind.utils.paths import store_url

FILE = """
import sys
from tradewind import report, tunable
from beside import CENTRE

SPACE = {"X": "1..4", "word": ["1", "a"], "step": [0.5, 2]}

@tunable(SPACE, budget={"trials": 16}, searcher="exhaustive", parallel=2)
def bowl(X, word, step):
    assert isinstance(X, int) and isinstance(word, str) and isinstance(step, int | float)
    if X == 4:
        sys.exit(7)
    if X == 2:
        raise ValueError("no such X")
    return {"value": (X - CENTRE) ** 2 + step + (word == "a")}

@tunable({"x": [1]}, objective={"maximise": "score"})
def scored(x):
    report(step=1, score=x)

@tunable({"x": [1]}, objective="runtime", job={"image": "python:3.12"})
def timed(x):
    return 5.0

def plain(x):
    return x

if __name__ == "__main__":
    import tradewind
    print(tradewind.submit(bowl, trials=3, tenant="physics").id)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "train.py").write_text(FILE)
    (made / "beside.py").write_text("CENTRE = 3\n")
    monkeypatch.chdir(tmp_path)
    return made


def test_a_function_becomes_a_job_that_starts_in_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_function("work/train.py:bowl").spec({"budget.trials": 2})
    assert spec.job.workdir == folder
    assert spec.job.command[0] == sys.executable
    assert spec.job.command[-2:] == ("train.py:bowl", "value")
    assert (spec.name, spec.budget.trials, spec.objective.goal) == ("bowl", 2, "minimise")
    timed = load_function("work/train.py:timed").spec()
    assert (timed.job.command[0], timed.job.command[-1]) == ("python3", "")
    monkeypatch.chdir(folder)
    assert load_function("train:scored").spec().job.command[-2:] == ("train:scored", "score")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("work/train.py:plain", r"train.py:plain is not tunable.*@tradewind.tunable"),
        ("work/train.py:nothing", "has no nothing"),
        ("work/nowhere.py:bowl", "there is no file"),
        ("nowhere_at_all:bowl", "No module named"),
    ],
)
def test_what_is_no_tunable_function_is_refused(folder: Path, reference: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_function(reference)


def test_functions_that_no_other_process_finds_are_refused() -> None:
    @tunable({"x": [1, 2]})
    def local(x: int) -> float:
        return x

    with pytest.raises(InputError, match=r"no other process finds this function.*top level of a file"):
        tradewind.submit(local)
    with pytest.raises(InputError, match=r"cannot be submitted.*tunable function"):
        tradewind.submit(3)  # type: ignore[arg-type]


def test_a_function_of_a_package_is_found_from_the_folder_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tw_package" / "inner").mkdir(parents=True)
    for part in ("tw_package", "tw_package/inner"):
        (tmp_path / part / "__init__.py").write_text("")
    (tmp_path / "tw_package/inner/mine.py").write_text(
        "from tradewind import tunable\n@tunable({'x': [1]})\ndef f(x):\n    return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from tw_package.inner.mine import f  # type: ignore[import-not-found]

    found = function_job(f)
    assert (found.reference, found.folder) == ("tw_package.inner.mine:f", tmp_path)


def test_a_file_that_submits_itself_when_it_is_loaded_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_LOADING", "train.py:bowl")
    function = load_function("work/train.py:bowl").function
    with pytest.raises(InputError, match=r"so would each run.*if __name__ == \"__main__\""):
        tradewind.submit(function)


def test_job_parameters_are_of_job_yamls(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "work/train.py:bowl", "--param", "size=3"]) != 0
    assert "a function has no job parameters" in capsys.readouterr().err


@pytest.mark.slow
def test_a_submitted_function_is_searched_and_its_exits_fail_their_trials_only(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", "work/train.py:bowl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "bowl"
    done = subprocess.run(
        [sys.executable, str(folder / "train.py")], env={**os.environ}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "2"
    (folder / "train.py").write_text("edited after it was submitted")
    assert run(["cluster", "start", "--until-empty"]) == 0
    with closing(ClusterStore(store_url())) as queue, closing(plugins.create("store", "sql", {}, url=store_url())) as s:
        first, second = sorted(queue.jobs(), key=lambda row: row.id)
        assert (first.state, second.state, second.tenant) == ("done", "done", "physics")
        assert first.study_id is not None and second.study_id is not None
        trials = s.trials(first.study_id)
        assert len(s.trials(second.study_id)) == 3
    assert len(trials) == 16
    for trial in trials:
        assert trial.observation is not None
        if trial.configuration["X"] in (2, 4):
            assert trial.state is TrialState.FAILED
            code = 7 if trial.configuration["X"] == 4 else 1
            assert f"exited with code {code}" in trial.observation.reason
        else:
            values = trial.configuration
            wanted = (int(values["X"]) - 3) ** 2 + float(values["step"]) + (values["word"] == "a")
            assert trial.observation.objective == wanted


ALL_WRONG = """
import math, sys
from tradewind import tunable

VALUES = ["abc", math.nan, None, {"value": "x"}]

@tunable({"x": [0, 1, 2, 3, 4]}, searcher="exhaustive", stop=[{"use": "all_failed", "trials": 20}])
def wrong(x):
    return VALUES[x] if x < 4 else sys.exit(0)
"""


@pytest.mark.slow
def test_a_function_that_returns_nothing_useful_fails_all_its_trials_alike_here_and_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "wrong.py").write_text(ALL_WRONG)
    function = load_function("work/wrong.py:wrong").function
    assert function.tune(fresh=True, progress=False) is None
    assert run(["submit", "work/wrong.py:wrong"]) == 0
    assert run(["cluster", "start", "--until-empty"]) == 7
    with closing(ClusterStore(store_url())) as queue, closing(plugins.create("store", "sql", {}, url=store_url())) as s:
        (job,) = queue.jobs()
        assert job.state == "failed" and job.study_id is not None
        (here,) = [row.id for row in s.list_studies() if row.id != job.study_id]
        mine, theirs = ([trial.observation for trial in s.trials(number)] for number in (here, job.study_id))
    assert [one.reason for one in mine if one is not None] == [
        "it returned 'abc', which is no number",
        "it returned nan, which is no finite number",
        "the output has no metric 'value'; it has cost, runtime",
        "it returned value='x', which is no number",
        "it called sys.exit(0)",
    ]
    for one, other in zip(mine, theirs, strict=True):
        assert one is not None and other is not None
        assert other.reason.removeprefix("the program exited with code 1: ").replace("exit_code, ", "") == one.reason


WRONG = """
from tradewind import tunable

@tunable({"x": [1, 2]}, searcher="rndom")
def misspelt(x):
    return x

@tunable({"x": [object()]})
def strange(x):
    return x

@tunable({"x": [1, 2]}, job={"command": ["true"]})
def other(x):
    return x
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("misspelt", "^wrong.py:misspelt: searcher: there is no searcher named 'rndom'"),
        ("strange", "^wrong.py:strange: space.x.0: <object object .* is no value"),
        ("other", "^wrong.py:other: job.command: the function would not be called"),
    ],
)
def test_what_is_wrong_with_a_function_is_told_without_lines_that_nobody_wrote(
    folder: Path, name: str, words: str
) -> None:
    (folder / "wrong.py").write_text(WRONG)
    with pytest.raises(InputError, match=words):
        load_function(f"work/wrong.py:{name}").spec()


def test_a_file_that_does_not_load_is_named_with_its_line(folder: Path) -> None:
    (folder / "wrong.py").write_text(WRONG.replace("misspelt(x)", "misspelt(y)"))
    with pytest.raises(InputError, match=r"wrong.py:4: misspelt takes no argument 'x', which is in its space"):
        load_function("work/wrong.py:misspelt")
    with pytest.raises(InputError, match=r"^nowhere_at_all:f: ModuleNotFoundError: No module named"):
        load_function("nowhere_at_all:f")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.py", "x = 1\n", "a.py goes into its command, or submit a.py:function with a @tunable one"),
        ("b.py", "@tradewind.tunable({'x': [1]})\n@cached\ndef fit(x): ...\n", "tradewind submit b.py:fit takes"),
        ("c.ipynb", "{}", "no other process finds a notebook's functions"),
        ("d.sh", "echo\n", "d.sh goes into its command"),
    ],
)
def test_a_program_in_place_of_a_job_says_what_to_do(
    tmp_path: Path, name: str, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert run(["submit", str(tmp_path / name)]) == 3
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": float("nan")}, "target nan: that is no result"),
        ({"target": "5"}, "target '5': that is no result"),
        ({"target": True}, "target True: that is no result"),
        ({"demand": {"cpu": -1}}, "-1 of resource 'cpu' is no amount"),
        ({"demand": {"cpu": "2"}}, "demand: '2' of cpu is no amount"),
        ({"demand": {"CPU": 2}}, "demand: 'CPU' is no name of a resource"),
        ({"demand": "cpu=2"}, "demand 'cpu=2' is none.*by name"),
        ({"tenant": ""}, "tenant '' is no name of a tenant"),
        ({"tenant": "a/b"}, "tenant 'a/b' is no name of a tenant"),
        ({"nice": "x"}, "nice 'x' is no whole number"),
        ({"cluster": 3}, "cluster 3 is no name"),
    ],
)
def test_a_program_cannot_hand_over_what_would_end_the_cluster(folder: Path, given: dict[str, Any], words: str) -> None:
    """A text as ``nice`` ended the whole cluster, with the searches of all others."""
    with pytest.raises(InputError, match=words):
        tradewind.submit("work/train.py:bowl", **given)
    with closing(ClusterStore(store_url())) as store:
        assert store.jobs() == []


def test_numbers_of_numpy_are_numbers(folder: Path) -> None:
    import numpy as np

    found = tradewind.submit("work/train.py:bowl", target=np.float64(0.5), nice=np.int64(2))  # type: ignore[arg-type]
    assert (found.options["target"], found.nice) == (0.5, 2)


def test_a_file_of_a_package_is_named_as_its_module(tmp_path: Path) -> None:
    place = tmp_path / "lib" / "packed"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("")
    (place / "beside.py").write_text("CENTRE = 3\n")
    (place / "train.py").write_text("from .beside import CENTRE\n")
    with pytest.raises(InputError, match=rf"in {tmp_path}/lib, tradewind submit packed.train:f"):
        load_function(f"{place}/train.py:f")
