"""The documents of the guide are accepted, and its job of figure 4 runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import blocks
from tests.service.requests.request_world import working, world

from tradewind.service.requests.request_document import read_document

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "requests.md"


def documents() -> list[dict[str, Any]]:
    """The documents of the guide, in their order."""
    return [json.loads(block.text) for block in blocks(GUIDE.read_text()) if block.language == "json"]


def test_the_documents_of_the_guide_are_read() -> None:
    run, search, paper, script = documents()
    assert read_document(run).own is not None
    asked = read_document(search).own
    assert asked is not None
    assert asked.search is not None
    assert read_document(paper).figure is not None
    assert read_document(script).figure is not None


@pytest.mark.slow
def test_the_script_of_the_guide_runs(tmp_path: Path) -> None:
    script = documents()[3]
    with world(tmp_path) as there, working(there.context):
        row = there.ended(there.context.requests.submit(there.root, script))
        assert (row.state, row.problem) == ("done", "")
        assert there.context.requests.log(there.root, row.id).text == "to\nwhom\nit\nmay\nconcern\n"
        with there.context.requests.open(there.root, row.id, "outputs/user_data.json") as file:
            assert json.load(file) == script["user_data"]
