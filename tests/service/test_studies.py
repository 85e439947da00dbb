"""Studies as the service shows them: to whom, how much of them, and how often they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tradewind.errors import InputError, NotFoundError
from tradewind.problem import (
    Configuration,
    Observation,
    Offer,
    Proposal,
    Run,
    RunPreemption,
    RunState,
    Trial,
    TrialState,
)
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.documents import short
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.studies import StudyService
from tradewind.store.base import Change, StudyRow
from tradewind.store.clusters.cluster_store import JobRow

ANN = Principal(1, "ann", "user", "physics")
BOB = Principal(2, "bob", "user", "biology")
ROOT = Principal(3, "root", "admin", "root")

SPEC: dict[str, Any] = {
    "objective": {"minimise": "cost"},
    "constraints": {"deadline": 20.0},
    "budget": {"dollars": 5.0, "trials": 100},
    "searcher": {"use": "gp"},
}

Make = Callable[..., int]


def trial(number: int, *, state: TrialState = TrialState.SUCCEEDED, feasible: bool = True) -> Trial:
    """A trial whose cost falls with its number."""
    cpus = 1 + number % 4
    offer = Offer("local", f"c{cpus}", cpus, 2.0 * cpus, 0.05 * cpus)
    settings = {"codec": ("bz2", "zlib")[number % 2], "fast": number % 3 == 0, "size": number, "workers": cpus}
    chosen = Configuration(settings)
    cost = 1.0 / (number + 1)
    ended = state.ended
    seen = Observation(cost, cost, 10.0 + number, feasible, reason="" if feasible else "late") if ended else None
    return Trial(
        number, Proposal(chosen, why={"expected_cost": 0.5}), offer, state, chosen.key, seen, cost if ended else 0.0,
        1, 100.0 + number, 100.5 + number, 101.0 + number if ended else None,
    )  # fmt: skip


@pytest.fixture
def make(context: Context) -> Make:
    """Makes a study with some trials, of a tenant or of the command line."""

    def build(count: int = 12, *, tenant: str = "", name: str = "zip", **fields: Any) -> int:
        row = context.store.create_study(StudyRow(0, name, "key", SPEC, 100.0, owner=f"tw-{name}"))
        trials = [trial(number) for number in range(count)]
        runs = [Run(f"{row.id}-{t.number}", t.number, state=RunState.DONE, cost=t.spent, runtime=9.0) for t in trials]
        context.store.write(row.id, Change(trials=trials, runs=runs, study=fields))
        if tenant:
            context.cluster.submit(JobRow(0, tenant, name, {}, study_id=row.id))
        return row.id

    return build


@pytest.mark.slow
def test_a_study_is_shown_to_its_tenant_and_to_administrators(context: Context, make: Make) -> None:
    own, plain = make(tenant="physics"), make(name="by hand")
    assert [one["id"] for one in context.studies.list(ANN)] == [own]
    assert [one["id"] for one in context.studies.list(BOB)] == []
    assert [one["id"] for one in context.studies.list(ROOT)] == [plain, own]
    assert [one["tenant"] for one in context.studies.list(ROOT)] == ["", "physics"]
    assert context.studies.list(ANN, tenant="biology") == []
    assert context.studies.get(ANN, own)["spent"] == pytest.approx(sum(1 / n for n in range(1, 13)))


@pytest.mark.parametrize("ask", ["get", "stamp", "figures", "trials"])
def test_another_tenants_study_is_refused_as_one_that_is_not_there(context: Context, make: Make, ask: str) -> None:
    own, plain = make(tenant="physics"), make()
    for hidden in (own, plain):
        with pytest.raises(NotFoundError) as found:
            getattr(context.studies, ask)(BOB, hidden)
        with pytest.raises(NotFoundError) as missing:
            getattr(context.studies, ask)(BOB, 4711)
        assert str(found.value) == str(missing.value).replace("4711", str(hidden))
    with pytest.raises(NotFoundError):
        context.studies.trial(BOB, own, 0)


def test_who_took_a_run_is_named_to_those_who_may_see_that_tenant(
    context: Context, make: Make, client: TestClient, ann: dict[str, str], root: dict[str, str]
) -> None:
    """One rule for all calls, whose answers the pages draw; what is kept for one reader is not shown to another."""
    own = make(tenant="physics")
    taken = Run(
        f"{own}-0", 0, state=RunState.CANCELLED, cost=0.5, runtime=9.0, reason="taken for tenant biology",
        preemption=RunPreemption("biology", "taker", 1.0, 0.25, "had no place 2 min after its work came"),
    )  # fmt: skip
    alive = replace(
        taken, run_id=f"{own}-11b", trial=11, state=RunState.EXECUTING, reason="ending: taken for tenant biology"
    )
    context.store.write(own, Change(runs=[taken, alive]))
    below = ("", "/figures", "/trials", "/trials/0", "/trials/11")
    calls = [*(f"/api/v1/studies/{own}{each}" for each in below), "/api/v1/machines", "/api/v1/clusters"]

    def told(headers: dict[str, str]) -> dict[str, str]:
        found = {path: client.get(path, headers=headers) for path in calls}
        assert {path: answer.status_code for path, answer in found.items()} == dict.fromkeys(found, 200)
        return {path: answer.text for path, answer in found.items()}

    for _ in range(2):
        mine, everything = told(ann), told(root)
        named = [f"/api/v1/studies/{own}{each}" for each in ("/figures", "/trials/0", "/trials/11")]
        assert [path for path, text in everything.items() if "biology" in text] == [*named, "/api/v1/machines"]
        assert [path for path, text in mine.items() if "biology" in text] == []
        assert [path for path, text in mine.items() if "another tenant" in text] == [*named, "/api/v1/machines"]
    assert "biology" not in context.studies.csv(ANN, own)[1]
    tags = {client.get(named[0], headers=headers).headers["etag"] for headers in (ann, root)}
    assert len(tags) == 2


def test_the_list_is_paged_and_filtered(context: Context, make: Make) -> None:
    ids = [make(2, name=f"job {n}", state="finished" if n % 2 else "open") for n in range(6)]
    page = context.studies.list(ROOT, limit=4)
    assert [one["id"] for one in page] == ids[:1:-1]
    assert [one["id"] for one in context.studies.list(ROOT, before=page[-1]["id"])] == ids[1::-1]
    assert [one["name"] for one in context.studies.list(ROOT, text="OB 3")] == ["job 3"]
    assert context.studies.list(ROOT, text="%") == []
    assert [one["id"] for one in context.studies.list(ROOT, states=["finished"])] == ids[5::-2]
    token = context.store.hold(ids[0], "elsewhere:1:1.0", 60.0)
    assert [one["id"] for one in context.studies.list(ROOT, states=["running"])] == [ids[0]]
    assert ids[0] not in [one["id"] for one in context.studies.list(ROOT, states=["stopped"])]
    context.store.release(ids[0], token)
    assert ids[0] in [one["id"] for one in context.studies.list(ROOT, states=["stopped"])]
    with pytest.raises(InputError, match="'asleep' is no state"):
        context.studies.list(ROOT, states=["asleep"])


def test_trials_come_by_column(context: Context, make: Make) -> None:
    study = make(tenant="physics")
    found = context.studies.trials(ANN, study)
    columns = found["columns"]
    assert found["total"] == 12
    assert found["next"] is None
    assert columns["number"] == list(range(12))
    assert columns["cost"][:3] == [1.0, 0.5, 0.333333]
    assert [columns["state"]["words"][code] for code in columns["state"]["codes"]] == ["succeeded"] * 12
    assert columns["created"][:2] == [0.0, 1.0]
    codec, fast, size, workers = found["parameters"]
    assert (workers["name"], workers["values"][:5]) == ("workers", [1.0, 2.0, 3.0, 4.0, 1.0])
    assert size["values"] == [float(number) for number in range(12)]
    assert codec["values"] == {"words": ["bz2", "zlib"], "codes": [0, 1] * 6}
    assert fast["values"]["words"] == ["false", "true"]
    assert found["best"] == 11
    assert found["open_from"] == 12
    page = context.studies.trials(ANN, study, since=4, limit=3)
    assert page["columns"]["number"] == [4, 5, 6]
    assert page["next"] == 7


def test_what_is_new_of_a_running_study_is_told_by_itself(context: Context, make: Make) -> None:
    study = make(4)
    before = context.studies.stamp(ROOT, study)
    running = [trial(4, state=TrialState.RUNNING), trial(5, state=TrialState.FAILED, feasible=False)]
    context.store.write(study, Change(trials=running))
    assert context.studies.stamp(ROOT, study) != before
    found = context.studies.trials(ROOT, study, since=4)
    assert [found["columns"]["state"]["words"][c] for c in found["columns"]["state"]["codes"]] == ["running", "failed"]
    assert found["open_from"] == 4
    assert found["reasons"] == {"5": "late"}
    context.store.write(study, Change(trials=[trial(4)]))
    assert context.studies.trials(ROOT, study)["open_from"] == 6


def test_a_study_is_read_once_until_it_changes(context: Context, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    study, reads = make(), []
    load = StudyData.load.__func__  # type: ignore[attr-defined]

    def counted(cls: type[StudyData], *args: Any) -> StudyData:
        reads.append(args)
        loaded: StudyData = load(cls, *args)
        return loaded

    monkeypatch.setattr(StudyData, "load", classmethod(counted))
    first = context.studies.trials_json(ROOT, study)
    assert context.studies.trials_json(ROOT, study) == first
    stamp, text = context.studies.figures_json(ROOT, study)
    assert (stamp, json.loads(text)["stamp"]) == (first[0], first[0])
    assert len(reads) == 1
    context.store.write(study, Change(trials=[trial(12)]))
    assert context.studies.trials_json(ROOT, study)[0] != first[0]
    assert len(reads) == 2


def test_a_large_study_is_not_read_for_every_trial(
    context: Context, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.service.studies._LARGE", 12)
    clock = iter([0.0, 0.4, 1.0, 5.0, 5.4])  # it takes 0.4 s to read: it is shown for 4 s
    studies, study = StudyService(context.database, context.store, lambda: next(clock)), make()
    first = studies.trials(ROOT, study)
    context.store.write(study, Change(trials=[trial(12)]))
    assert studies.stamp(ROOT, study) != first["stamp"]
    assert studies.trials(ROOT, study) == first, "after a second"
    assert studies.trials(ROOT, study)["total"] == 13, "after five"


def test_figures_say_what_the_report_says(context: Context, make: Make) -> None:
    study = make(16)
    found = context.studies.figures(ROOT, study)
    assert found["curve"]["best"] == sorted(found["curve"]["best"], reverse=True)
    assert found["curve"]["number"][-1] == context.studies.get(ROOT, study)["best"]["number"]
    assert found["axis"] == {"kind": "money", "title": "cost, this run"}
    assert found["words"][0].startswith("Use ")
    assert sum(one["share"] for one in found["split"]) == pytest.approx(1.0)
    assert set(found["levels"]) == {"workers", "codec", "fast", "size"}
    assert {one["parameter"] for one in found["effects"]} == {"workers", "codec", "fast", "size"}
    told = [one for one in found["effects"] if one["verdict"] == "tells"]
    assert all(any(one["words"] in sentence for sentence in found["words"]) for one in told[:3])


def test_one_trial_has_its_runs_and_what_was_expected(context: Context, make: Make) -> None:
    study = make(tenant="physics")
    found = context.studies.trial(ANN, study, 3)
    assert found["configuration"] == {"codec": "zlib", "fast": True, "size": 3, "workers": 4}
    assert found["why"] == {"expected_cost": 0.5}
    assert [(one["run"], one["state"]) for one in found["runs"]] == [(f"{study}-3", "done")]
    for number in (-1, 12):
        with pytest.raises(NotFoundError, match="no trial"):
            context.studies.trial(ANN, study, number)


def test_numbers_keep_six_figures_and_read_back_as_written() -> None:
    import numpy as np

    values = np.array([0.1, 1 / 3, 123456.789, 1234567.0, 0.0, -2e-9 / 3, np.nan, np.inf])
    assert short(values) == [0.1, 0.333333, 123457.0, 1234570.0, 0.0, -6.66667e-10, None, None]


def test_words_stand_in_the_order_that_people_give_them() -> None:
    import numpy as np

    from tradewind.reporting.study.data import ParameterColumn
    from tradewind.reporting.study.documents import _values

    given = np.array(["c5.16xlarge", "c5.2xlarge", None, "c5.xlarge", "c5.2xlarge"], dtype=object)
    found = _values(ParameterColumn("instance", given), slice(0, 5))
    assert found == {"words": ["c5.2xlarge", "c5.16xlarge", "c5.xlarge"], "codes": [1, 0, None, 2, 0]}
