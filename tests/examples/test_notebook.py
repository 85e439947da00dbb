"""The notebook of the examples is executed, and studies of interrupted kernels go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

if TYPE_CHECKING:
    from nbformat import NotebookNode

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook" / "tune_function.ipynb"


def test_the_notebook_is_valid_and_comes_without_outputs() -> None:
    notebook = nbformat.read(EXAMPLE, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in cells] == [[]] * len(cells)
    assert {cell.execution_count for cell in cells} == {None}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotebookClient]:
    """A kernel in a folder of its own."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    made = NotebookClient(nbformat.v4.new_notebook(), timeout=100, resources={"metadata": {"path": str(tmp_path)}})
    with made.setup_kernel():
        yield made


def execute(client: NotebookClient, source: str, **options: Any) -> NotebookNode:
    """Execute a cell, and return it with its outputs."""
    cell = nbformat.v4.new_code_cell(source, **options)
    client.nb.cells.append(cell)
    return client.execute_cell(cell, len(client.nb.cells) - 1)


def words(cell: NotebookNode) -> str:
    """What a cell has printed and shown, as text."""
    shown = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(shown)


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom_twice(client: NotebookClient, tmp_path: Path) -> None:
    cells = [cell for cell in nbformat.read(EXAMPLE, as_version=4).cells if cell.cell_type == "code"]
    for _ in range(2):
        done = {cell.id: execute(client, cell.source) for cell in cells}
        (bar,) = done["search"].outputs
        assert bar.data["text/plain"].startswith("12 of 12 trials, best runtime ")
        assert 'value="1.0000"' in bar.data["text/html"]
        for name in ("look", "trials", "best", "report"):
            (output,) = done[name].outputs
            assert output.data["text/html"], name
        assert "precision=float64" in words(done["look"])
        assert "the budget of 12 trials is used up" in words(done["look"])
        assert "infeasible  block=" in words(done["trials"])
        assert "<iframe" in done["report"].outputs[0].data["text/html"]
        assert (tmp_path / "smooth.html").read_text().startswith("<!doctype html>")


OPEN = """
import threading
from tradewind import Study

calls, blocked = [], True

def function(x):
    calls.append(x)
    if len(calls) == 3 and blocked:
        print("READY", flush=True)
        threading.Event().wait(60)
    return x

JOB = {"name": "bowl", "space": {"x": "0..5"}, "objective": {"minimise": "value"}, "searcher": "exhaustive"}
"""


def interrupt(client: NotebookClient, source: str) -> NotebookNode:
    """Execute a cell, and interrupt the kernel when the cell prints READY."""
    process, sent = client.process_message, []

    def listen(message: dict[str, Any], cell: NotebookNode, index: int) -> Any:
        if message["msg_type"] == "stream" and "READY" in message["content"]["text"]:
            assert client.km is not None
            sent.append(asyncio.ensure_future(client.km.interrupt_kernel()))
        return process(message, cell, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "process_message", listen)
        cell = execute(client, source, metadata={"tags": ["raises-exception"]})
    assert len(sent) == 1
    return cell


@pytest.mark.slow
def test_after_an_interrupt_the_next_cell_goes_on(client: NotebookClient) -> None:
    execute(client, OPEN)
    stopped = interrupt(client, "study = Study(JOB)\nstudy.optimise(function)")
    assert stopped.outputs[-1].ename == "KeyboardInterrupt"
    assert "2 of 6 trials" in words(stopped)
    going_on = execute(client, "blocked = False\nstudy.optimise(function)")
    assert "6 of 6 trials, best value 0" in words(going_on)
    assert words(execute(client, "calls")) == "[0, 1, 2, 2, 3, 4, 5]"
    assert words(execute(client, "[str(trial.state) for trial in study.trials]")) == str(["succeeded"] * 6)
    assert "6 succeeded" in words(execute(client, "study"))


@pytest.mark.thorough
@pytest.mark.slow
def test_after_an_interrupt_the_cells_can_be_run_again_from_the_top(client: NotebookClient) -> None:
    cell = "with Study(JOB) as study:\n    study.optimise(function)"
    execute(client, OPEN)
    assert interrupt(client, cell).outputs[-1].ename == "KeyboardInterrupt"
    execute(client, OPEN + "blocked = False")
    execute(client, cell)
    assert words(execute(client, "calls")) == "[2, 3, 4, 5]"
    assert "6 succeeded" in words(execute(client, "study"))
