"""A request runs the code that its application's folder had when it was handed in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.requests.request_world import World, clusters, working, world

from tradewind.errors import ConflictError
from tradewind.service.requests.request_planner import CODE
from tradewind.store.service.requests import RequestRow
from tradewind.tenancy import code_snapshots

_TOOL = """
name: tool
job: {{command: [sh, run.sh], workdir: {folder}}}
space: {{n: [1, 2, 3], instance: {{types: [local.c1]}}}}
objective: {{minimise: wrong}}
interpret: {{use: regex, patterns: ['wrong (?P<wrong>[0-9])']}}
deploy: {{billing: {{granularity: 1ms}}}}
application: {{fields: {{}}}}
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        folder = tmp_path / "program"
        folder.mkdir()
        (folder / "run.sh").write_text("echo wrong 1\n")
        (folder / ".tradewindignore").write_text("*.dat\n")
        found.context.applications.register(found.root, _TOOL.format(folder=folder), shared=True)
        yield found


def _submit(there: World, **more: object) -> RequestRow:
    given = {"application": "tool", **(more or {"configuration": {"n": 1, "instance": "local.c1"}})}
    return there.context.requests.submit(there.ann, given)


def _program(there: World) -> Path:
    return there.journal.parent / "program" / "run.sh"


def _log(there: World, row: RequestRow, trial: int | None = None) -> str:
    return there.context.requests.log(there.ann, row.id, trial=trial).text


@pytest.mark.slow
def test_what_is_edited_between_handing_in_and_running_does_not_count(there: World) -> None:
    first, again = _submit(there), _submit(there)
    _program(there).write_text("echo wrong 2\n")
    third = _submit(there)
    assert first.plan[CODE] == again.plan[CODE] != third.plan[CODE]
    assert len(list((there.home / "code" / "snapshots").glob("*.tar"))) == 2
    with working(there.context):
        assert [_log(there, there.ended(row)) for row in (first, third)] == ["wrong 1\n", "wrong 2\n"]
    assert there.get(first).plan[CODE] == first.plan[CODE]
    assert list((there.home / "code" / "trees").iterdir()) == []


@pytest.mark.slow
def test_all_trials_of_a_search_run_one_version_and_a_retry_does_too(there: World) -> None:
    _program(there).write_text(f"echo 'echo wrong 2' > {_program(there)}; echo wrong 1\n")
    row = _submit(there, search={"budget": {"trials": 3}, "searcher": "exhaustive"})
    with working(there.context):
        ended = there.ended(row)
        assert (ended.state, ended.progress["trials"]) == ("done", 3)
        assert [_log(there, row, trial) for trial in range(3)] == ["wrong 1\n"] * 3
    assert ended.study_id is not None
    versions = {run.code for run in there.context.store.runs(ended.study_id)}
    assert len(versions) == 1
    assert "" not in versions
    _program(there).write_text("echo broken; exit 3\n")
    failed = _submit(there)
    with working(there.context):
        assert there.ended(failed).state == "failed"
        _program(there).write_text("echo wrong 0\n")
        there.context.requests.retry(there.ann, failed.id)
        assert there.ended(failed).state == "failed"
        resubmitted = there.context.requests.resubmit(there.ann, failed.id, {})
        assert there.ended(resubmitted).state == "done"


def test_a_folder_that_cannot_be_kept_is_refused_when_it_is_asked(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_program(there).parent / "big.dat").write_bytes(b"x" * 1000)
    monkeypatch.setattr(code_snapshots, "LIMIT_BYTES", 100)
    _submit(there)  # it is ignored
    (_program(there).parent / "model.bin").write_bytes(b"x" * 1000)
    with pytest.raises(ConflictError, match=r"too large to be kept with the request .*largest: model.bin") as caught:
        _submit(there)
    assert ".tradewindignore" in str(caught.value.hint)
    shutil.rmtree(_program(there).parent)
    with pytest.raises(ConflictError, match=r"the working folder /.*/program does not exist"):
        _submit(there)


@pytest.mark.slow
def test_another_server_without_the_snapshot_takes_only_the_same_files(there: World) -> None:
    same = _submit(there)
    shutil.rmtree(there.home / "code")
    with working(there.context):
        assert there.ended(same).state == "done"
    other = _submit(there)
    (there.home / "code" / "snapshots" / f"{other.plan[CODE]}.tar").unlink()
    _program(there).write_text("echo wrong 2\n")
    with working(there.context):
        ended = there.ended(other)
    assert ended.state == "failed"
    assert "is not there, and /" in ended.problem
    assert "has other files here" in ended.problem
    assert ended.hint.startswith("give all servers the same files there")


def test_a_cluster_is_handed_the_snapshot(there: World) -> None:
    with clusters(there, default={"own_code": True}):
        row = _submit(there, search={"budget": {"trials": 3}}, cluster="default")
        claim = there.context.requests.claims.claim("here:1:1.0", 60.0, lambda lines: (lines[0].first, 0.0))
        assert claim is not None
        assert there.context.requests.planner.cluster_code(claim.row) == {
            "code": {
                "archive": str(there.home / "code" / "snapshots" / f"{row.plan[CODE]}.tar"),
                "digest": row.plan[CODE],
            }
        }
        spec, _ = there.context.requests.planner.prepare(claim.row)
        assert spec.job.workdir == _program(there).parent  # the cluster lays it out


def test_deleting_a_request_removes_its_files(there: World) -> None:
    row = _submit(there)
    spec, _ = there.context.requests.planner.prepare(row)
    assert (spec.job.workdir / "run.sh").read_text() == "echo wrong 1\n"
    assert spec.job.workdir.is_relative_to(there.home / "code" / "trees")
    there.context.requests.delete(there.ann, row.id)
    assert not spec.job.workdir.exists()
    assert json.dumps(dict(row.plan)).count(str(there.home)) == 0  # no path of the server is shown to its user
