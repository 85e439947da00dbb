"""Pages of workflow runs that were begun by command: administrators watch them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.service.web.page_client import Visitor
from tests.workflow.execution.test_results import RUN, plan

from tradewind.service.context import Context
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.execution.stored.store_journal import RunnerChoice, StoreJournal


@pytest.mark.slow
def test_an_administrator_sees_a_run_while_it_goes_on(shared: Context, tmp_path: Path) -> None:
    folder, runner = WorkflowRunFolder(tmp_path / "plan.run"), RunnerChoice("process", {}, tmp_path)
    root, ann = Visitor(shared, "root"), Visitor(shared, "ann")
    with closing(StoreJournal(shared.url, plan(), folder, runner)) as journal:
        journal.write(*RUN[:8])
        number = shared.store.list_studies(plan().flow.name)[0].id
        assert f'href="/studies/{number}"' in root.get("/workflows").text
        page = root.get(f"/studies/{number}").text
        assert f'data-source="/studies/{number}/workflow/chart"' in page
        chart = root.get(f"/studies/{number}/workflow/chart").json()
        assert (chart["ending"], chart["running"]) == ("running", ["b", "c"])
    assert f'href="/studies/{number}"' not in ann.get("/workflows").text
    for path in (f"/studies/{number}", f"/studies/{number}/workflow/chart"):
        assert ann.get(path).status_code == 404
    assert str(number) in root.get("/studies").text
