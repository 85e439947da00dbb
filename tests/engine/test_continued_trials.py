"""Trials that go on from the checkpoint of another one do the rest of the work only, on real processes."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.engine.search_builder import build_search, new_study
from tradewind.problem import TrialState
from tradewind.problem.job_spec.spec import parse_spec

PROGRAM = """
import os, pathlib
place, out = (os.environ["TRADEWIND_" + name] for name in ("CHECKPOINT", "METRICS"))
state, wanted = pathlib.Path(place, "state"), round(4 * float(os.environ["TRADEWIND_FRACTION"]))
done = int(state.read_text()) if state.exists() else 0
state.write_text(str(wanted))
loss = abs(float(os.environ["TRADEWIND_PARAM_X"]) - 3) + 1 / wanted
pathlib.Path(out).write_text('{"loss": %r, "did": %d, "found": %d}' % (loss, wanted - done, done))
"""

JOB = f"""
name: halving
job: {{command: [{sys.executable}, -S, train.py]}}
space: {{x: 1..9}}
objective: {{minimise: loss}}
budget: {{trials: 7}}
searcher: {{use: asha, eta: 2, rungs: 3}}
deploy: {{checkpoint: 1m}}
"""


@pytest.mark.slow
def test_a_promoted_trial_does_the_rest_only(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    spec = parse_spec(JOB, base=tmp_path)
    with closing(plugins.create("store", "sql", {}, url=f"sqlite:///{tmp_path}/store.db")) as store:
        study = store.create_study(new_study(spec))
        build_search(spec, study, store, tmp_path / "data").run()
        trials = {trial.number: trial for trial in store.trials(study.id)}
    assert len(trials) == 7
    [whole] = [trial.number for trial in trials.values() if trial.proposal.fidelity == 1.0]
    left = {int(path.name) for path in (tmp_path / "data" / "checkpoints" / study.owner).iterdir()}
    gone = {trial.proposal.origin for trial in trials.values()} - {None}
    assert whole in left and not left & gone, "nothing goes on twice from a trial"
    metrics = {number: trial.observation.metrics for number, trial in trials.items() if trial.observation is not None}
    for number, trial in trials.items():
        steps = round(4 * trial.proposal.fidelity)
        origin = trial.proposal.origin
        before = 0 if origin is None else round(4 * trials[origin].proposal.fidelity)
        assert (metrics[number]["found"], metrics[number]["did"]) == (before, steps - before)
    assert max(metrics[number]["found"] for number in trials) == 2, "it went on twice"


@pytest.mark.slow
@pytest.mark.parametrize(("limits", "kept"), [("keep: 0, waiting: 0", 0), ("keep: 1, waiting: 1", 1)])
def test_few_checkpoints_stay_where_the_user_wants_few(tmp_path: Path, limits: str, kept: int) -> None:
    """A trial whose checkpoint is gone begins anew, with the same result."""
    (tmp_path / "train.py").write_text(PROGRAM)
    spec = parse_spec(JOB.replace("checkpoint: 1m", f"checkpoint: {{every: 1m, {limits}}}"), base=tmp_path)
    with closing(plugins.create("store", "sql", {}, url=f"sqlite:///{tmp_path}/store.db")) as store:
        study = store.create_study(new_study(spec))
        build_search(spec, study, store, tmp_path / "data").run()
        trials = store.trials(study.id)
    assert [trial.state for trial in trials] == [TrialState.SUCCEEDED] * 7
    assert len(list((tmp_path / "data" / "checkpoints" / study.owner).iterdir())) == kept
    went_on = [trial for trial in trials if trial.proposal.origin is not None]
    found = [trial.observation.metrics["found"] for trial in went_on if trial.observation is not None]
    assert any(found) == bool(kept)
