"""What a page shows of runs that really took place."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.web.page_client import Visitor, words
from tests.service.web.sample_server import Stage

pytestmark = pytest.mark.xdist_group("browser")  # it shares their server


def test_what_was_predicted_stands_beside_what_it_took(scene: Stage) -> None:
    first = scene.wait(scene.submit(parameters={"size": 210}).id, "done")
    second = scene.wait(scene.submit(parameters={"size": 210}).id, "done")
    predicted = second.plan["predicted"]
    assert predicted["runtime_low"] <= predicted["runtime"] <= predicted["runtime_high"]
    assert set(predicted) == {f"{figure}{end}" for figure in ("runtime", "cost") for end in ("", "_low", "_high")}
    page = words(Visitor(scene.context, "ann").get(f"/requests/{second.id}").text)
    assert "Predicted Mostly between Actual Difference Run time" in page
    assert first.cost > 0


def test_what_a_run_prints_is_read_while_it_runs(scene: Stage) -> None:
    row = scene.wait(scene.submit(parameters={"seconds": 30}).id, "executing")
    ann = Visitor(scene.context, "ann")
    for _ in range(200):
        part = ann.get(f"/requests/{row.id}/log/stdout").json()
        if "step 3" in part["text"]:
            break
    of = {"next": 51, "ended": False, "run": part["run"], "trial": 0}
    assert part == {"text": "plate 200 step 1\nplate 200 step 2\nplate 200 step 3\n", **of}
    assert ann.get(f"/requests/{row.id}/log/stdout?offset=51&run={part['run']}").json() == {"text": "", **of}
    file = ann.get(f"/requests/{row.id}/files/stdout")
    assert file.headers["content-disposition"].startswith("attachment")
    assert file.text == part["text"]
    ann.post(f"/requests/{row.id}/cancel")
    scene.wait(row.id, "cancelled")


def test_the_end_of_a_failed_log_is_read_once(scene: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    row = scene.wait(scene.submit(parameters={"code": 3}).id, "failed")
    ann, read, log = Visitor(scene.context, "ann"), [], scene.context.requests.log

    def counted(who: Any, number: int, stream: str, *words: Any, **more: Any) -> Any:
        read.append(stream)
        return log(who, number, stream, *words, **more)

    monkeypatch.setattr(scene.context.requests, "log", counted)
    page = ann.get(f"/requests/{row.id}").text
    assert page.count("the grid does not fit into memory") == 2, "at the top, and in the log"
    assert sorted(read) == sorted(set(read))
    assert "stderr" in read
    assert "the grid does not fit into memory" in ann.get(f"/requests/{row.id}?part=1").text
