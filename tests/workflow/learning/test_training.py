"""Learning: golden numbers, folders that survive a kill, resuming, and the planners' folders."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import eventually
from tests.workflow.datasets import dax, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.testing.planners import PLATFORMS, example_flow
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.learning.adaptive import AdaptiveWeights
from tradewind.workflow.learning.evaluation import compare_pairs, evaluate_policy
from tradewind.workflow.learning.learners import AdaptiveLearner, CrossEntropy, Learner
from tradewind.workflow.learning.q_learning import QLearningSettings, QPolicy
from tradewind.workflow.learning.training_folder import TrainingFolder, open_learner, with_kept_runtimes
from tradewind.workflow.planner.q_learning import QLearningPlanner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.readers.platform_yaml import paper3
from tradewind.workflow.simulator.world import World

UNSURE = {"noise": 0.3, "unknown": 0.4, "period": 5.0}
METHODS = [("q_learning", {}), ("q_learning", {"keyed_by": "activation", **UNSURE}), ("adaptive", UNSURE)]


def learner(method: str, settings: dict[str, Any], seed: int = 0) -> Learner:
    return open_learner(method, example_flow(), PLATFORMS["unlike"], settings, seed)


def train(path: Path, method: str, settings: dict[str, Any], episodes: int, *, resume: bool = False) -> Learner:
    found = learner(method, settings)
    folder = TrainingFolder(path, found, settings, resume=resume)
    for _ in folder.recall():
        pass
    while found.episodes < episodes:
        folder.keep(found.step())
    return found


def timeless(path: Path) -> list[Any]:
    """All episodes of a folder, but for how long they took."""
    documents = [json.loads(file.read_text()) for file in sorted((path / "episodes").glob("*.json"))]
    return [{key: value for key, value in each.items() if key != "seconds"} for each in documents]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_resuming_comes_to_what_one_run_comes_to(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    whole = train(tmp_path / "whole", method, settings, 25)
    for episodes in (3, 3, 14, 25):
        parts = train(tmp_path / "parts", method, settings, episodes, resume=(tmp_path / "parts").exists())
    assert timeless(tmp_path / "parts") == timeless(tmp_path / "whole")
    assert list(parts.lines()) == list(whole.lines())
    assert (tmp_path / "parts/table.csv").read_text() == (tmp_path / "whole/table.csv").read_text()
    world = World(noise=0.3, seed=8)
    assert parts.run(world).start.tolist() == whole.run(world).start.tolist()


@pytest.mark.slow
def test_what_a_folder_has(tmp_path: Path) -> None:
    train(tmp_path / "x", "q_learning", {}, 3)
    rows = list(csv.DictReader((tmp_path / "x/table.csv").read_text().splitlines()))
    assert len(rows) == 7 * 3, "each machine has the seven pairs of states and action of the paper's Table 1"
    assert {row["machine"] for row in rows} == {"slow", "fast", "wide"}
    assert {row["q"] for row in rows if row["action"] != "allocate"} == {"0.2"}
    assert {row["q"] for row in rows if row["action"] == "allocate"} != {"0.2"}
    last = json.loads((tmp_path / "x/episodes/000003.json").read_text())
    assert last["makespan"] == max(row[3] for row in last["plan"])
    assert last["serial"] == pytest.approx(sum(row[3] - row[2] for row in last["plan"]))
    assert len(last["plan"]) == 24


@pytest.mark.slow
def test_a_killed_process_loses_at_most_the_running_episode(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.workflow.learning.test_training import train\n"
        "train(Path(sys.argv[1]), 'q_learning', {}, 100000)\n"
    )
    where = tmp_path / "x"
    root = Path(__file__).parents[3]
    process = subprocess.Popen([sys.executable, "-c", code, str(where)], cwd=root)
    try:
        eventually((where / "episodes/000020.json").exists)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=20)
    kept = len(list((where / "episodes").glob("0*.json")))
    assert kept >= 20
    train(where, "q_learning", {}, kept + 5, resume=True)
    train(tmp_path / "whole", "q_learning", {}, kept + 5)
    assert timeless(where) == timeless(tmp_path / "whole")


def test_a_folder_is_not_mixed_up(tmp_path: Path) -> None:
    train(tmp_path / "x", "q_learning", {}, 2)
    with pytest.raises(WorkflowError, match=r"has what was learned before \(--resume goes on with it\)"):
        train(tmp_path / "x", "q_learning", {}, 2)
    with pytest.raises(WorkflowError, match=r"with other settings: explore was None and is 0\.5"):
        train(tmp_path / "x", "q_learning", {"explore": 0.5}, 2, resume=True)
    with pytest.raises(WorkflowError, match="by another method: q_learning, now adaptive"):
        train(tmp_path / "x", "adaptive", {}, 2, resume=True)
    other = open_learner("q_learning", example_flow(30), PLATFORMS["unlike"], {}, 0)
    with pytest.raises(WorkflowError, match=r"about other tasks: now with t24, t25, t26 \("):
        TrainingFolder(tmp_path / "x", other, {}, resume=True)
    flow = example_flow()
    tied = replace(flow, parents=((), *((0,) for _ in flow.tasks[1:])))
    other = open_learner("q_learning", tied, PLATFORMS["unlike"], {}, 0)
    with pytest.raises(WorkflowError, match="about another workflow or other machines"):
        TrainingFolder(tmp_path / "x", other, {}, resume=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_text("")
    with pytest.raises(WorkflowError, match="has other files in it"):
        train(tmp_path / "full", "q_learning", {}, 2)
    (tmp_path / "x/episodes/000002.json").write_text('{"plan": [["t0", "slow", 0, 1]]}')
    with pytest.raises(WorkflowError, match=r"000002\.json: it is not an episode as it was written"):
        train(tmp_path / "x", "q_learning", {}, 2, resume=True)


def measured_flow(factor: float = 3.0) -> Workflow:
    """The example as a real run has shown it to be: every second task takes longer."""
    flow = example_flow()
    tasks = [replace(task, runtime=task.runtime * (factor if n % 2 else 1.0)) for n, task in enumerate(flow.tasks)]
    return replace(flow, tasks=tuple(tasks))


def go_on(path: Path, method: str, settings: dict[str, Any], flow: Workflow, episodes: int) -> TrainingFolder:
    """Go on with run times that were measured."""
    found = open_learner(method, flow, PLATFORMS["unlike"], settings, 0)
    folder = TrainingFolder(path, found, settings, resume=True, stated=example_flow(), renew=True, episodes=episodes)
    for _ in folder.recall():
        pass
    while found.episodes < episodes:
        folder.keep(found.step())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_goes_on_with_measured_times_however_often_it_is_interrupted(
    tmp_path: Path, method: str, settings: dict[str, Any]
) -> None:
    flow = measured_flow()
    for name, ends in (("whole", (25,)), ("parts", (15, 16, 25))):
        train(tmp_path / name, method, settings, 14)
        for end in ends:
            folder = go_on(tmp_path / name, method, settings, flow, end)
            assert folder.since == 15
    assert timeless(tmp_path / "parts") == timeless(tmp_path / "whole")
    assert (tmp_path / "parts/table.csv").read_text() == (tmp_path / "whole/table.csv").read_text()
    train(tmp_path / "same", method, settings, 25)
    with_stated, with_measured = timeless(tmp_path / "same"), timeless(tmp_path / "whole")
    assert with_stated[:14] == with_measured[:14]
    longer = sum(task.runtime for task in flow.tasks) / sum(task.runtime for task in example_flow().tasks)
    assert sum(e["serial"] for e in with_measured[14:]) > 0.6 * longer * sum(e["serial"] for e in with_stated[14:])


def test_values_that_were_learned_stay_with_measured_times_and_old_times_do_not(tmp_path: Path) -> None:
    before = train(tmp_path / "x", "q_learning", {}, 5)
    flow = measured_flow()
    found = open_learner("q_learning", flow, PLATFORMS["unlike"], {}, 0)
    folder = TrainingFolder(tmp_path / "x", found, {}, resume=True, stated=example_flow(), renew=True)
    assert len(list(folder.recall())) == 5
    assert list(found.lines()) == list(before.lines())
    fresh = open_learner("q_learning", flow, PLATFORMS["unlike"], {}, 0)
    assert found.policy.times.tolist() == fresh.policy.times.tolist() != before.policy.times.tolist()  # type: ignore[attr-defined]


def test_a_generation_that_had_other_times_is_run_again(tmp_path: Path) -> None:
    """The 13th and 14th of its ten candidates do not compare with those of the measured times."""
    train(tmp_path / "x", "adaptive", UNSURE, 14)
    go_on(tmp_path / "x", "adaptive", UNSURE, measured_flow(), 24)
    found = timeless(tmp_path / "x")
    assert [each["state"]["generation"] for each in found] == [0] * 9 + [1] * 14 + [2]
    assert [each["state"]["weights"] for each in found[10:14]] == [each["state"]["weights"] for each in found[14:18]]


def test_each_measurement_begins_a_phase(tmp_path: Path) -> None:
    train(tmp_path / "x", "q_learning", {}, 3)
    assert go_on(tmp_path / "x", "q_learning", {}, measured_flow(), 5).since == 4
    assert go_on(tmp_path / "x", "q_learning", {}, measured_flow(), 5).former is None
    third = go_on(tmp_path / "x", "q_learning", {}, measured_flow(5.0), 6)
    assert third.since == 6
    assert third.former == {task.id: task.runtime for task in measured_flow().tasks}
    kept = with_kept_runtimes(example_flow(), tmp_path / "x")
    assert kept.tasks == measured_flow(5.0).tasks
    with pytest.raises(WorkflowError, match=r"x has 6 episodes: none is left to learn .* \(give --episodes 56"):
        go_on(tmp_path / "x", "q_learning", {}, measured_flow(7.0), 6)
    assert with_kept_runtimes(example_flow(), tmp_path / "x").tasks == kept.tasks, "a refused phase leaves nothing"
    for number in (4, 5, 6):
        (tmp_path / f"x/episodes/{number:06}.json").unlink()
    assert go_on(tmp_path / "x", "q_learning", {}, measured_flow(5.0), 5).since == 4


def test_other_times_in_the_file_are_no_measurement(tmp_path: Path) -> None:
    train(tmp_path / "x", "q_learning", {}, 2)
    other = open_learner("q_learning", measured_flow(), PLATFORMS["unlike"], {}, 0)
    with pytest.raises(WorkflowError, match=r"with other run times \(give the file as it was, .* --measured goes on"):
        TrainingFolder(tmp_path / "x", other, {}, resume=True)


def test_a_folder_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    train(tmp_path / "x", "q_learning", {}, 2)
    file = tmp_path / "x/training.json"
    document = json.loads(file.read_text())
    document["digest"] = document.pop("phases")[0]["digest"]
    del document["shape"]
    file.write_text(json.dumps(document))
    train(tmp_path / "x", "q_learning", {}, 3, resume=True)
    assert with_kept_runtimes(example_flow(), tmp_path / "x") == example_flow()
    assert go_on(tmp_path / "x", "q_learning", {}, measured_flow(), 5).since == 4
    assert go_on(tmp_path / "x", "q_learning", {}, measured_flow(), 6).since == 4
    other = open_learner("q_learning", measured_flow(2.0), PLATFORMS["unlike"], {}, 0)
    with pytest.raises(WorkflowError, match="about another workflow or other machines"):
        TrainingFolder(tmp_path / "x", other, {}, resume=True, renew=True)
    file.write_text(json.dumps({**document, "phases": [{"from": 1}]}))
    with pytest.raises(WorkflowError, match=r"training.json: its 'phases' are not as they were written"):
        train(tmp_path / "x", "q_learning", {}, 3, resume=True)


def test_the_rules_of_the_paper_by_hand() -> None:
    """The index 0.5 te + 0.5 tf against mean and deviation of those before; then r + γ max Q replaces the value."""
    from tradewind.workflow.learning.kernel import credit

    table, efficiency, seen = np.full((1, 3), 0.2), np.zeros(2), np.zeros(3)
    given = (seen, efficiency, 1, 0.5, 1.0, 0.5)
    assert credit(table, 0, 1, 0.2, 4.0, 0.0, *given) == 0  # index 2: nothing to compare with
    assert table[0].tolist() == pytest.approx([0.2, 0.1, 0.2])
    assert credit(table, 0, 1, 0.2, 4.0, 4.0, *given) == 0  # index 4: mean 3, deviation 1
    assert credit(table, 0, 1, 0.6, 10.0, 0.0, *given) == -1  # 5 > 3 + 1
    assert table[0, 1] == pytest.approx(-1 + 0.5 * 0.6)
    assert efficiency.tolist() == [0.0, -1.0]
    assert credit(table, 0, 1, 0.2, 1.0, 0.0, *given) == 1
    assert table[0, 1] == pytest.approx(1 + 0.5 * 0.2)
    assert seen[1] == pytest.approx(np.mean([2, 4, 5, 0.5]))
    assert seen[2] / 4 == pytest.approx(np.var([2, 4, 5, 0.5]))


def test_run_times_are_collected_before_the_first_episode() -> None:
    policy = QPolicy(example_flow(), PLATFORMS["unlike"], QLearningSettings(noise=0.5))
    stated = policy.times.copy()
    policy.collect(World(noise=0.5, seed=4))
    assert (policy.times != stated).all()
    reading = policy.arrays.reading[:, None]
    factors = (policy.times - reading) / (stated - reading)
    assert np.allclose(factors, factors[:, :1]), "a task's luck is the same on all machines"


@needs_datasets
def test_golden_numbers() -> None:
    flow, platform = dax("Montage_25"), paper3(64)
    found = {}
    for method, settings in (("q_learning", {}), ("adaptive", {"noise": 0.2, "unknown": 0.4})):
        one = open_learner(method, flow, platform, settings, 1)
        found[method] = [one.step().makespan for _ in range(30)][-1], one.run(World()).makespan
    for method, numbers in GOLDEN.items():
        assert found[method] == pytest.approx(numbers, rel=1e-9)


GOLDEN = {
    "q_learning": (40.796279401026624, 40.787301943599616),
    "adaptive": (27.938228844493118, 25.770398469618222),
}
"""Makespan of the thirtieth episode, and of the policy then where all goes as stated."""


@pytest.mark.thorough
@needs_datasets
@pytest.mark.slow
def test_a_hundred_episodes_of_montage_1000_take_less_than_five_seconds(tmp_path: Path) -> None:
    for method in ("q_learning", "adaptive"):
        one = open_learner(method, dax("Montage_1000"), paper3(128), {}, 0)
        one.step()  # compiles
        one = open_learner(method, dax("Montage_1000"), paper3(128), {}, 0)
        begun = time.process_time()
        folder = TrainingFolder(tmp_path / method, one, {}, resume=False)
        for _ in range(100):
            folder.keep(one.step())
        assert time.process_time() - begun < 5.0


@pytest.mark.slow
def test_the_adaptive_policy_beats_a_followed_plan_on_unseen_seeds() -> None:
    found = AdaptiveLearner(example_flow(80), PLATFORMS["unlike"], AdaptiveLearner.Settings(**UNSURE))
    for _ in range(30):
        found.step()
    judged = evaluate_policy(found, None, worlds=20, seconds=0.1)
    rows = {row.name: row for row in judged.rows}
    against = rows["adaptive, learned"].against
    assert against is not None
    assert against.high < 0.95
    assert rows["adaptive, learned"].makespan < rows["HEFT, online"].makespan
    assert judged.worlds == 20


@pytest.mark.slow
def test_where_all_is_known_the_search_is_said_to_win() -> None:
    found = learner("q_learning", {})
    best = min((found.step() for _ in range(10)), key=lambda each: each.makespan).schedule
    judged = evaluate_policy(found, best, worlds=20, seconds=0.2)
    assert judged.worlds == 0
    assert judged.best.name != "q_learning, learned"
    assert judged.figures.makespan <= best.makespan


@pytest.mark.parametrize("settings", [{}, {"noise": 0.3, "unknown": 0.3}])
@pytest.mark.parametrize("method", ["adaptive", "q_learning"])
def test_what_was_learned_fetches_files_too(method: str, settings: dict[str, Any]) -> None:
    one = Task("a", "a", 1.0, ("in",), ("mid",))
    flow = Workflow("w", (one, Task("b", "b", 1.0, ("mid",))), ((), (0,)), {"in": 1_500_000_000, "mid": 15_000_000})
    local = Platform((Vm("only"),), "local", bandwidth=15.0)
    found = open_learner(method, flow, local, settings, 0)
    best = min((found.step() for _ in range(5)), key=lambda each: each.makespan).schedule
    judged = evaluate_policy(found, best if found.certain else None, worlds=3, seconds=0.01)
    assert judged.figures.makespan == pytest.approx(102.0)
    assert all(row.makespan > 100.0 for row in judged.rows)
    assert len({round(row.makespan, 6) for row in judged.rows}) == 1  # of one machine nobody makes more


def test_machines_that_are_moved_stand_still_a_while_where_nobody_says_how_long() -> None:
    assert AdaptiveLearner.Settings(migration=0.1).varying
    assert not AdaptiveLearner.Settings(migration=0.1, pause=0.0).varying


@pytest.mark.slow
def test_planners_keep_what_they_learned(tmp_path: Path) -> None:
    settings = QLearningSettings(episodes=5)
    flow, platform = example_flow(), PLATFORMS["unlike"]
    first = QLearningPlanner(settings=settings, data_folder=tmp_path).plan(flow, platform)
    files = sorted(tmp_path.rglob("0*.json"))
    before = [file.stat().st_mtime_ns for file in files]
    again = QLearningPlanner(settings=settings, data_folder=tmp_path).plan(flow, platform)
    assert len(files) == 5
    assert [file.stat().st_mtime_ns for file in files] == before
    assert again.start.tolist() == first.start.tolist()
    QLearningPlanner(settings=QLearningSettings(episodes=7), data_folder=tmp_path).plan(flow, platform)
    assert len(list(tmp_path.rglob("0*.json"))) == 7


def test_cross_entropy_finds_a_minimum_in_noise() -> None:
    search, chance = CrossEntropy([0.0, 0.0], [1.0, 1.0], size=20, seed=3), np.random.default_rng(5)
    for _ in range(30):
        asked = search.ask()
        assert asked.tolist() == search.ask().tolist()
        search.tell(((asked - [1.5, -0.7]) ** 2).sum(axis=1) + 0.1 * chance.standard_normal(20))
    assert search.mean.tolist() == pytest.approx([1.5, -0.7], abs=0.15)


def test_weights_are_numbers_without_limits_and_back() -> None:
    weights = AdaptiveWeights(0.5, 0.1, 0.2, 0.3, -0.4, 0.2, 0.1, 0.6)
    assert AdaptiveWeights.of_free(weights.free).array.tolist() == pytest.approx(weights.array.tolist())
    assert AdaptiveWeights.of_free([99.0] * 8).fastest == 1.0


def test_pairs() -> None:
    same = compare_pairs([2.0, 4.0, 8.0], [1.0, 2.0, 4.0])
    assert (same.ratio, same.low, same.high) == pytest.approx((2.0, 2.0, 2.0))
    wide = compare_pairs([1.0, 2.0, 3.0, 1.5], [1.5, 1.5, 1.5, 1.5])
    assert wide.low < wide.ratio < wide.high
