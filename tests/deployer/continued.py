"""A search whose trials go on from checkpoints, on any engine: promoted, interrupted, continued, nothing run twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.deployer.checkpoints import CheckpointStore
from tradewind.engine.search_builder import build_search, new_study
from tradewind.problem import RunState, TrialState
from tradewind.problem.job_spec.spec import parse_spec

_PROGRAM = """
place=$TRADEWIND_CHECKPOINT/state
found=$(cat "$place" 2> /dev/null || echo 0)
done=$found
case $TRADEWIND_FRACTION in 0.25*) wanted=1;; 0.5*) wanted=2;; *) wanted=4;; esac
while [ "$done" -lt "$wanted" ]; do
  done=$((done + 1))
  echo "step $done"
  echo "$done" > "$place.part" && mv "$place.part" "$place"
  if [ "$found" -lt 3 ] && [ "$done" -eq 3 ]; then # until the user has had enough, in the middle of the next one
    echo hal > "$place.part"
    sleep 120
  fi
done
loss=$((10 - TRADEWIND_PARAM_X))
echo "{\\"loss\\": $loss, \\"found\\": $found, \\"did\\": $((done - found))}" > "$TRADEWIND_METRICS"
"""

INTERRUPTED = 3
"""The step at which the last trial is interrupted, of four."""


def assert_goes_on(
    folder: Path, runner: Mapping[str, Any], *, image: str | None = None, lose: Callable[[str], object] | None = None
) -> None:
    """Search on an engine, interrupt it while the last trial runs, go on, and see that each step was run once.

    Args:
        folder: An empty folder.
        runner: The runner in the job YAML.
        image: The image of the job.
        lose: Takes a run's machine away, by the run's id, instead of the user who interrupts the search.
    """
    (folder / "work").mkdir()
    (folder / "work" / "train.sh").write_text(_PROGRAM)
    spec = parse_spec(_document(runner, image), base=folder / "work")
    with closing(plugins.create("store", "sql", {}, url=f"sqlite:///{folder}/store.db")) as store:
        study = store.create_study(new_study(spec))
        place = folder / "data" / "checkpoints" / study.owner

        lost: list[str] = []

        def goes_on() -> bool:
            if lost or not any(_state(each) == INTERRUPTED for each in place.glob("*")):
                return True
            if lose is not None:
                lost.extend(run.run_id for run in store.runs(study.id, open_only=True))
                for run_id in lost:
                    lose(run_id)
            return lose is not None

        stop = build_search(spec, study, store, folder / "data").run(wanted=goes_on)
        assert stop.interrupted == (lose is None), (stop, [run.reason for run in store.runs(study.id)])
        if lose is None:
            build_search(spec, study, store, folder / "data").run()
        trials = {trial.number: trial for trial in store.trials(study.id)}
        runs = store.runs(study.id)
    assert [trial.state for trial in trials.values()] == [TrialState.SUCCEEDED] * 4
    metrics = {number: trial.observation.metrics for number, trial in trials.items() if trial.observation is not None}
    steps = {number: round(4 * trial.proposal.fidelity) for number, trial in trials.items()}
    for number, trial in trials.items():
        origin = trial.proposal.origin
        before = INTERRUPTED if steps[number] == 4 else 0 if origin is None else steps[origin]
        did = metrics[number]["found"], metrics[number]["did"]
        assert did == (before, steps[number] - before), (number, metrics)
    assert sorted(steps.values()) == [1, 1, 2, 4]
    ended = sorted(run.state for run in runs)
    cut = RunState.CANCELLED if lose is None else RunState.PREEMPTED
    assert ended == sorted([RunState.DONE] * 4 + [cut]), "what was paid for is not run again"
    done = [Path(run.folder) / "stdout" for run in runs if run.state is RunState.DONE]
    said = [line for path in done for line in path.read_text().splitlines()]
    assert sorted(said) == ["step 1", "step 1", "step 2", "step 4"], "the interrupted run was at step 3"


_COPIED = """
lineage=$TRADEWIND_CHECKPOINT/lineage
echo "$TRADEWIND_RUN_ID" >> "$lineage"
i=0; while [ $i -lt 40000 ]; do i=$((i + 1)); done # the others write meanwhile
echo "{\\"loss\\": $((10 - TRADEWIND_PARAM_X)), \\"lines\\": $(wc -l < "$lineage")}" > "$TRADEWIND_METRICS"
"""


def assert_copied(folder: Path, runner: Mapping[str, Any], *, image: str | None = None) -> None:
    """Train a population whose members all go on from the same one, and see that each writes into a copy of its own.

    Args:
        folder: An empty folder.
        runner: The runner in the job YAML.
        image: The image of the job.
    """
    (folder / "work").mkdir()
    (folder / "work" / "train.sh").write_text(_COPIED)
    job = json.loads(_document(runner, image))
    job |= {"searcher": {"use": "pbt", "population": 3, "turns": 2, "quantile": 0.5}, "budget": {"trials": 6}}
    job |= {"parallel": 3, "try_first": []}
    job["deploy"]["checkpoint"] = {"every": "1s", "keep": 9}
    spec = parse_spec(json.dumps(job), base=folder / "work")
    with closing(plugins.create("store", "sql", {}, url=f"sqlite:///{folder}/store.db")) as store:
        study = store.create_study(new_study(spec))
        build_search(spec, study, store, folder / "data").run()
        trials = store.trials(study.id)
        runs = {run.trial: run.run_id for run in store.runs(study.id)}
    assert [trial.state for trial in trials] == [TrialState.SUCCEEDED] * 6
    later = [trial for trial in trials if trial.proposal.origin is not None]
    assert len(later) == 3 > len({trial.proposal.origin for trial in later}), "two go on from the same one"
    for trial in later:
        assert trial.observation is not None and trial.observation.metrics["lines"] == 2
        saved = CheckpointStore(folder / "data" / "checkpoints" / study.owner / f"{trial.number:05d}").latest()
        assert saved is not None and trial.proposal.origin is not None
        said = (saved.files / "lineage").read_text().split()
        assert said == [runs[trial.proposal.origin], runs[trial.number]]


def _state(folder: Path) -> int | None:
    saved = CheckpointStore(folder).latest()
    text = "" if saved is None else (saved.files / "state").read_text().strip()
    return int(text) if text else None


def _document(runner: Mapping[str, Any], image: str | None) -> str:
    return json.dumps(
        {
            "name": "halving",
            "job": {"command": ["sh", "train.sh"], **({} if image is None else {"image": image})},
            "offers": {"provider": "local", "types": ["local.c1"]},
            "space": {"x": [1, 2, 3, 4, 5, 6, 7, 8, 9]},
            "objective": {"minimise": "loss"},
            "budget": {"trials": 4},
            "searcher": {"use": "asha", "eta": 2, "rungs": 3},
            "deploy": {"checkpoint": "1s", "runner": dict(runner)},
        }
    )
