"""The applications that ship are registered, filled in and run by a server with a worker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.requests.request_world import World, working, world

from tradewind.errors import NotFoundError
from tradewind.store.service.requests import RequestRow

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "service"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        for name in NAMES:
            file = EXAMPLES / f"{name}.yaml"
            made.context.applications.register(made.root, file.read_text(), shared=True, file=str(file))
        yield made


def run(server: World, application: str, parameters: dict[str, Any], configuration: dict[str, Any]) -> RequestRow:
    """A request that has ended well."""
    document = {"application": application, "parameters": parameters, "configuration": configuration}
    with working(server.context):
        row = server.ended(server.context.requests.submit(server.ann, document), seconds=240)
    assert row.state == "done", f"{row.problem} {server.context.requests.log(server.ann, row.id, 'stderr').text}"
    return row


def kept(server: World, row: RequestRow, path: str) -> Path:
    """A file that a request kept."""
    return server.context.requests.file(server.ann, row.id, path)


def metrics(server: World, row: RequestRow) -> dict[str, float]:
    assert row.study_id is not None
    (trial,) = server.context.store.trials(row.study_id)
    assert trial.observation is not None
    return dict(trial.observation.metrics)


@pytest.mark.parametrize("name", NAMES)
def test_anybody_may_register_it(server: World, name: str) -> None:
    text = (EXAMPLES / f"{name}.yaml").read_text()
    row = server.context.applications.register(server.ann, text)
    form = server.context.applications.form(server.ann, row.reference)
    assert form.title != row.name
    assert all(one.title != one.name for one in form.fields), "people read titles"
    assert (EXAMPLES / "README.md").read_text().count(f"`{name}.yaml`") == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpicc") is None, reason="mpicc is not installed: apt-get install libopenmpi-dev")
def test_heat_is_the_same_on_any_number_of_processes(server: World) -> None:
    typed = {"cells": 33, "steps": 40, "source": "corner", "title": "my $(plate)"}
    found = []
    for ranks in (1, 4):
        row = run(server, "heat", typed, {"instance": "local.c2", "ranks": ranks})
        found.append((metrics(server, row)["mean"], kept(server, row, "outputs/plate.pgm").read_text()))
    assert found[0] == found[1]
    lines = found[0][1].splitlines()
    assert lines[:3] == ["P2", "# my $(plate)", "33 33"]
    plate = np.array([[int(cell) for cell in line.split()] for line in lines[4:]])
    assert plate.shape == (33, 33)
    assert plate[0, 0] == 255
    assert plate[0, 0] > plate[5, 5] > plate[-1, -1] == 0
    assert (plate == plate.T).all()


@pytest.mark.slow
def test_a_table_that_is_handed_in_is_learned(server: World) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    lines = [f"{a:.3f},{b:.3f},{'warm' if a + b > 0 else 'cold'}" for a, b in x]
    typed = {"source": "my own", "table": {"name": "my table.csv", "text": "\n".join(lines)}, "epochs": 20}
    configuration = {"instance": "local.c1", "threads": 1, "batch": 32}
    row = run(server, "classifier", typed, configuration)
    assert metrics(server, row)["accuracy"] > 0.9
    assert "of 40 rows" in kept(server, row, "outputs/report.txt").read_text()
    assert np.load(kept(server, row, "outputs/model.npz"))["w2"].shape == (32, 2)
    row = run(server, "classifier", {"rows": 300, "epochs": 3}, configuration)
    assert "of 60 rows" in kept(server, row, "outputs/report.txt").read_text()


@pytest.mark.slow
def test_the_workflow_is_carried_out_and_drawn(server: World) -> None:
    row = run(server, "mosaic", {"across": 2, "size": 8, "depth": 50}, {"instance": "local.c2", "machines": 2})
    assert metrics(server, row)["tasks"] == 10
    picture = kept(server, row, "outputs/plan.run/files/mosaic.pgm").read_text().split()
    pixels = np.array([int(cell) for cell in picture[4:]]).reshape(16, 16)
    assert pixels.max() == 255
    assert (pixels[1:] == pixels[:0:-1]).mean() > 0.9, "the set is symmetric"
    results = json.loads(kept(server, row, "outputs/plan.run/results.json").read_text())
    assert {task["activity"] for task in results["tasks"]} >= {"tile", "bright"}
    assert server.context.workflows.found(server.ann, row.id)
    paths = {entry.path for entry in server.context.requests.files(server.ann, row.id)}
    assert {path for path in paths if path.startswith("outputs/")} == {
        *("outputs/gantt.html", "outputs/plan.json", "outputs/plan.run/results.json"),
        *("outputs/plan.run/journal.jsonl", "outputs/plan.run/files/mosaic.pgm"),
    } & paths
    assert "outputs/gantt.html" in paths
    for name in ("secret", "machines", "files/scene.json"):
        with pytest.raises(NotFoundError):
            server.context.requests.open(server.ann, row.id, f"outputs/plan.run/{name}")
