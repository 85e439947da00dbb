"""The page of a study lets a search on a cluster that is over go on."""

from __future__ import annotations

import pytest
from tests.service.web.page_client import Visitor

from tradewind.engine.search_builder import new_study, study_document
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.service.context import Context
from tradewind.store.clusters.cluster_store import JobRow

JOB = """
name: train
job: {command: [train]}
space: {x: 1..40}
objective: {minimise: loss}
budget: {trials: 3}
"""


@pytest.mark.slow
def test_a_search_that_is_over_goes_on_from_its_page(shared: Context, tmp_path: object) -> None:
    spec = parse_spec(JOB, base=shared.data_folder)
    study = shared.store.create_study(new_study(spec, name="biology/train"))
    wanted = JobRow(0, "biology", "train", study_document(spec), study_id=study.id, state="done", reason="3 trials")
    job = shared.cluster.submit(wanted)
    root, ann = Visitor(shared, "root"), Visitor(shared, "ann")
    place = f"/studies/{study.id}"
    assert f'action="{place}/continue"' in root.get(place).text
    assert ann.post(f"{place}/continue", {"trials": "9"}).status_code == 404
    assert root.post(f"{place}/continue", {"trials": "9"}, csrf="none").status_code == 403
    for text in ("-1", "many", "1" * 20):
        assert root.post(f"{place}/continue", {"trials": text}).status_code == 422
    assert root.post(f"{place}/continue", {"trials": "0"}).status_code == 422
    assert shared.cluster.job(job.id).state == "done"
    assert root.post(f"{place}/continue", {"trials": "9"}).headers["location"] == place
    row = shared.cluster.job(job.id)
    assert (row.state, row.wanted, row.spec["budget"]["trials"]) == ("queued", "run", 9)
    assert "/continue" not in root.get(place).text, "it is not over any more"
    assert root.post(f"{place}/continue", {"trials": "12"}).status_code == 422


@pytest.mark.slow
def test_a_search_whose_money_is_used_up_gets_more_on_its_page(shared: Context) -> None:
    spec = parse_spec(JOB.replace("trials: 3", "trials: 3, dollars: 2"), base=shared.data_folder)
    study = shared.store.create_study(new_study(spec, name="biology/dear"))
    wanted = JobRow(0, "biology", "dear", study_document(spec), study_id=study.id, state="done")
    job = shared.cluster.submit(wanted)
    root, place = Visitor(shared, "root"), f"/studies/{study.id}"
    assert 'name="dollars"' in root.get(place).text
    for text in ("nan", "-1", "much", "0"):
        assert root.post(f"{place}/continue", {"trials": "9", "dollars": text}).status_code == 422
    assert root.post(f"{place}/continue", {"trials": "9", "dollars": "$3.50"}).status_code == 303
    assert shared.cluster.job(job.id).spec["budget"]["dollars"] == 3.5


def test_a_study_of_the_command_line_has_no_such_button(shared: Context) -> None:
    study = shared.store.create_study(new_study(parse_spec(JOB, base=shared.data_folder)))
    root = Visitor(shared, "root")
    assert "/continue" not in root.get(f"/studies/{study.id}").text
    assert root.post(f"/studies/{study.id}/continue", {"trials": "9"}).status_code == 422


def test_the_money_of_a_simulated_study_is_not_called_spent(shared: Context) -> None:
    root = Visitor(shared, "root")
    for runner, simulated in (("workflow", True), ("process", False)):
        wanted = new_study(parse_spec(JOB, base=shared.data_folder), name=f"{runner}-study")
        wanted.spec["job"]["deploy"]["runner"] = {"use": runner}
        study = shared.store.create_study(wanted)
        text = root.get(f"/studies/{study.id}").text
        assert ("cost of the search, simulated" in text) is simulated
        assert ("spent on the search" in text) is not simulated
        row = root.get("/studies").text.partition(f'id="study-{study.id}"')[2].partition("</tr>")[0]
        assert ("simulated</div>" in row) is simulated
