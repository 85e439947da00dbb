"""The functions behind REST, XML-RPC and the pages: who may do what, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.live_server import move
from tests.service.requests.request_world import World, clusters, working, world

from tradewind.errors import (
    ConfigurationError,
    ConflictError,
    ForbiddenError,
    FormError,
    InputError,
    NoOfferError,
    NotFoundError,
    QuotaError,
    TradewindError,
)
from tradewind.service.accounts.identity import Principal
from tradewind.service.requests.request_document import merge_documents
from tradewind.store.clusters.cluster_store import TenantRow
from tradewind.store.service.request_queries import last_event_number
from tradewind.store.service.requests import NewRequestEvent, RequestRow


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all: each test makes requests of its own."""
    with world(tmp_path_factory.mktemp("functions")) as found:
        yield found


@pytest.mark.slow
def test_a_request_is_checked_and_kept(there: World) -> None:
    row = there.submit(parameters={"seconds": "0.5"}, name="mine")
    assert (row.state, row.kind, row.tenant, row.user, row.name) == ("pending", "run", "physics", "ann", "mine")
    assert row.application == "note@1"
    assert row.document["parameters"] == {"seconds": 0.5, "code": 0}
    assert row.plan["backend"] == "local"
    assert there.stages(row) == ["pending"]


@pytest.mark.parametrize(
    ("document", "error", "message"),
    [
        ({"application": "nothing"}, NotFoundError, "there is no application 'nothing'"),
        ({"application": "note@7"}, NotFoundError, "note@7"),
        ({"parameters": {"seconds": -1}}, FormError, "seconds"),
        ({"parameters": {"what": 1}}, FormError, "what"),
        ({"configuration": {"instance": "m5.large"}}, ConfigurationError, "instance='m5.large' is not in the space"),
        ({"configuration": {"workers": 2}}, ConfigurationError, "there is no parameter 'workers'"),
        ({"backend": "moon"}, NotFoundError, "there is no backend 'moon'"),
        ({"resources": {"cpu": 1000}}, NoOfferError, "no offer"),
        ({"search": {}}, InputError, "nothing says what it may spend"),
        ({"search": {"budget": "$1", "searcher": "nobody"}}, InputError, "there is no searcher named 'nobody'"),
        ({"search": {"budget": "$1", "searcher": "antigravity:Mine"}}, InputError, "the server would run antigravity"),
        (
            {"search": {"budget": "$1", "seed": 10**30}},
            InputError,
            "search.seed: 1000000000000000000000000000000 should",
        ),
        ({"search": {"budget": "$1"}, "cluster": "moon"}, NotFoundError, "there is no cluster 'moon'"),
        ({"results": "/etc/cron.d"}, InputError, "do not go to /etc/cron.d"),
        ({"notify": {"webhook": "file:///etc/passwd"}}, InputError, "a webhook is an http"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_at_once(
    there: World, document: dict[str, Any], error: type[TradewindError], message: str
) -> None:
    before = last_event_number(there.context.database)
    with pytest.raises(error, match=message):
        there.submit(**document)
    assert last_event_number(there.context.database) == before


def test_figure_4_is_for_those_who_may_run_their_own_programs(there: World) -> None:
    document = {"template": "#!/bin/sh\necho {{ key1 }}\n", "user_data": {"key1": "v"}, "resources": {"nodes": 1}}
    row = there.context.requests.submit(there.root, document)
    assert (row.document, row.application, row.name) == (document, "", "request")
    with pytest.raises(ForbiddenError, match="runs only programs of its administrators"):
        there.context.requests.submit(there.ann, document)
    with pytest.raises(ForbiddenError, match="hooks: they run on the server"):
        there.context.requests.submit(there.ann, {**document, "hooks": [{"stage": "booting", "name": "x"}]})
    with pytest.raises(NotFoundError, match="has the scheduler slurm"):
        there.context.requests.submit(there.root, {**document, "scheduler": {"name": "slurm"}})


OWN = """
name: {name}
job: {{command: ["true"]}}
space: {{instance: {{types: [local.c1]}}}}
application: {{}}
"""


@pytest.mark.slow
def test_a_cluster_runs_programs_of_ordinary_users_only_where_it_says_so(tmp_path: Path) -> None:
    """Its runs are processes of whoever started it, whatever the backend says."""
    with world(tmp_path) as there, clusters(there, closed={}, opened={"own_code": True}):
        context = there.context
        context.backends.set(there.root, "open", {"own_code": True, "offers": {"provider": "local"}})
        context.applications.register(there.ann, OWN.format(name="hers"))
        context.applications.register(there.root, OWN.format(name="ours"), shared=True)
        search: dict[str, Any] = {"backend": "open", "search": {"budget": {"trials": 1}}}
        with pytest.raises(
            ForbiddenError, match="the cluster closed runs only programs of its administrators"
        ) as error:
            there.submit(application="hers", cluster="closed", **search)
        assert error.value.hint == "choose opened"
        with pytest.raises(ForbiddenError):
            there.submit(there.root, application="hers", cluster="closed", **search)  # whoever asks, it is her program
        assert there.submit(application="ours", cluster="closed", **search).cluster == "closed"
        row = there.submit(application="hers", cluster="opened", **search)
        # It is started anew without the flag while the request waits.
        with clusters(there, opened={}), working(context):
            ended = there.ended(row)
    assert (ended.state, ended.cluster_job) == ("failed", None)
    assert ended.problem == "the cluster opened runs only programs of its administrators"


def test_a_key_makes_asking_twice_harmless(there: World) -> None:
    first = there.submit(key="once", parameters={"seconds": 1})
    assert there.submit(key="once", parameters={"seconds": 1}).id == first.id
    with pytest.raises(ConflictError, match="which is another one"):
        there.submit(key="once", parameters={"seconds": 2})
    assert there.submit(there.bob, key="once", parameters={"seconds": 1}).id != first.id
    for key in ("", "x" * 201, "a\nb"):
        with pytest.raises(InputError, match="key"):
            there.submit(key=key)


@pytest.mark.slow
def test_a_key_stands_for_what_was_made_whatever_has_become_of_it(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        context, search = there.context, {"budget": "$2"}
        context.cluster.set_tenant(TenantRow("physics", quota={"dollars": 3.0}))
        first = there.submit(key="once", search=search)
        context.requests.store.change_free(
            first.id, ["pending"], {"state": "done", "cost": 2.0}, NewRequestEvent("done", "")
        )
        with pytest.raises(QuotaError):
            there.submit(key="another", search=search)
        again = there.submit(key="once", search=search)
        assert (again.id, again.state, again.cost) == (first.id, "done", 2.0)
        context.applications.retire(there.root, "note")
        assert there.submit(key="once", search=search).id == first.id
        with pytest.raises(NotFoundError, match="no application"):
            there.submit(key="once", search={"budget": "$1"})
        context.requests.delete(there.ann, first.id)
        with pytest.raises(NotFoundError, match="no application"):
            there.submit(key="once", search=search)


def test_a_key_of_before_digests_were_kept(there: World) -> None:
    first = there.submit(key="old", parameters={"seconds": 1})
    plan = {name: value for name, value in first.plan.items() if name != "sent"}
    there.context.requests.store.change_free(first.id, ["pending"], {"plan": plan}, NewRequestEvent("pending", ""))
    assert there.submit(key="old", parameters={"seconds": 1}).id == first.id
    with pytest.raises(ConflictError, match="which is another one"):
        there.submit(key="old", parameters={"seconds": 2})


def test_the_command_line_makes_no_requests(there: World) -> None:
    with pytest.raises(ForbiddenError, match="requests are made by users"):
        there.submit(Principal(0, "", "admin", "root"))


def test_another_tenant_s_request_is_not_there(there: World) -> None:
    row = there.submit()
    functions = there.context.requests
    calls: list[Callable[[], object]] = [
        lambda: functions.get(there.bob, row.id),
        lambda: functions.cancel(there.bob, row.id),
        lambda: functions.delete(there.bob, row.id),
        lambda: functions.retry(there.bob, row.id),
        lambda: functions.resubmit(there.bob, row.id, {}),
        lambda: functions.events(there.bob, row.id),
        lambda: functions.log(there.bob, row.id),
        lambda: functions.files(there.bob, row.id),
        lambda: functions.file(there.bob, row.id, "stdout"),
        lambda: functions.status(there.bob, row.id),
    ]
    for call in calls:
        with pytest.raises(NotFoundError) as theirs:
            call()
        with pytest.raises(NotFoundError) as nobodys:
            functions.get(there.bob, 999_999)
        assert str(theirs.value) == str(nobodys.value)
    assert row.id not in {one.id for one in functions.list(there.bob, limit=500)}
    assert functions.list(there.bob, tenant="physics") == []
    assert row.id not in {event.request_id for event in functions.events(there.bob)}
    assert row.id in {one.id for one in functions.list(there.root, tenant="physics", limit=500)}
    assert functions.get(there.root, row.id).id == row.id


def test_lists_are_bounded_and_know_their_states(there: World) -> None:
    rows = [there.submit() for _ in range(3)]
    functions = there.context.requests
    assert [row.id for row in functions.list(there.ann, limit=2)] == [rows[2].id, rows[1].id]
    assert functions.list(there.ann, before=rows[2].id, limit=1)[0].id == rows[1].id
    assert {row.application for row in functions.list(there.ann, application="note")} == {"note@1"}
    assert functions.list(there.ann, application="note@2") == []
    assert len(functions.list(there.ann, limit=0)) == 1
    with pytest.raises(InputError, match="there is no state 'flying'"):
        functions.list(there.ann, states=["flying"])
    assert functions.events(there.ann, rows[0].id, limit=0)


def test_a_request_that_is_done_is_advised_what_works(there: World) -> None:
    row = there.submit()
    functions = there.context.requests
    move(functions, row.id, "done")
    with pytest.raises(ConflictError, match=r"is over: it is done .*resubmit makes a new one"):
        functions.cancel(there.ann, row.id)
    with pytest.raises(ConflictError, match=r"has ended well .*resubmit"):
        functions.retry(there.ann, row.id)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/x", "http://[::1]/x", "http://169.254.169.254/", "http://10.0.0.1/"]
)
def test_a_webhook_inside_is_refused_at_once(there: World, url: str) -> None:
    with pytest.raises(InputError, match="inside this network"):
        there.submit(notify={"webhook": url})


def test_what_waits_is_cancelled_at_once_and_begun_again(there: World) -> None:
    row = there.submit()
    functions = there.context.requests
    cancelled = functions.cancel(there.ann, row.id)
    assert (cancelled.state, cancelled.problem) == ("cancelled", "cancelled by ann")
    with pytest.raises(ConflictError, match="is over: it is cancelled"):
        functions.cancel(there.ann, row.id)
    again = functions.retry(there.ann, row.id)
    assert (again.state, again.problem, again.ended) == ("pending", "", None)
    with pytest.raises(ConflictError, match=f"request {row.id} is pending"):
        functions.retry(there.ann, row.id)
    assert there.stages(row) == ["pending", "cancelled", "pending"]


def test_a_retry_with_a_key_is_done_once_however_it_ended(there: World) -> None:
    row = there.submit()
    functions = there.context.requests
    functions.cancel(there.ann, row.id)
    assert functions.retry(there.ann, row.id, key="once").state == "pending"
    assert functions.retry(there.ann, row.id, key="once").state == "pending"
    functions.cancel(there.ann, row.id)
    assert functions.retry(there.ann, row.id, key="once").state == "cancelled", "the answer was lost, not the retry"
    assert functions.retry(there.root, row.id, key="once").state == "pending", "a key is its user's own"
    functions.cancel(there.ann, row.id)
    assert functions.retry(there.ann, row.id, key="next").state == "pending"
    assert "once" not in str(functions.get(there.ann, row.id).plan), "whoever sees the plan does not see keys"
    with pytest.raises(InputError, match="key"):
        functions.retry(there.ann, row.id, key="")


def test_a_retry_of_a_row_that_has_changed_since_looks_at_it_anew(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = there.submit()
    functions = there.context.requests
    functions.cancel(there.ann, row.id)
    count, calls = functions._trials_ended, [0]

    def quicker(found: RequestRow) -> int:
        calls[0] += 1
        if calls[0] == 1:  # the first call, whose answer is lost, is carried out and ends in between
            functions.retry(there.ann, row.id, key="once")
            functions.cancel(there.ann, row.id)
        return count(found)

    monkeypatch.setattr(functions, "_trials_ended", quicker)
    assert functions.retry(there.ann, row.id, key="once").state == "cancelled"
    assert there.stages(row) == ["pending", "cancelled", "pending", "cancelled"]


def test_a_resubmission_with_a_key_is_made_once(there: World) -> None:
    row = there.submit(name="first")
    functions = there.context.requests
    made = functions.resubmit(there.ann, row.id, {"name": "second"}, key="again")
    assert functions.resubmit(there.ann, row.id, {"name": "second"}, key="again").id == made.id
    with pytest.raises(ConflictError, match="which is another one"):
        functions.resubmit(there.ann, row.id, {"name": "third"}, key="again")
    functions.delete(there.ann, row.id)
    assert functions.resubmit(there.ann, row.id, {"name": "second"}, key="again").id == made.id
    with pytest.raises(NotFoundError):
        functions.resubmit(there.ann, row.id, {"name": "second"}, key="new")


def test_what_ended_well_is_not_tried_again(there: World) -> None:
    row = there.submit()
    functions = there.context.requests
    functions.store.change_free(row.id, ["pending"], {"state": "done"}, NewRequestEvent("done", ""))
    with pytest.raises(ConflictError, match="has ended well"):
        functions.retry(there.ann, row.id)


def test_resubmitting_changes_what_is_said_and_keeps_the_rest(there: World) -> None:
    row = there.submit(parameters={"seconds": 3, "code": 1}, name="first")
    functions = there.context.requests
    other = functions.resubmit(there.ann, row.id, {"parameters": {"seconds": 4}, "name": None})
    assert other.id != row.id
    assert other.document["parameters"] == {"seconds": 4, "code": 1}
    assert "name" not in other.document
    with pytest.raises(FormError):
        functions.resubmit(there.ann, row.id, {"parameters": {"seconds": "long"}})


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, {"a": 1, "b": {"c": 2, "d": 3}}),
        ({"a": None}, {"b": {"c": 2, "d": 3}}),
        ({"b": {"c": None, "e": 4}}, {"a": 1, "b": {"d": 3, "e": 4}}),
        ({"a": {"x": 1, "y": None}, "b": [1]}, {"a": {"x": 1}, "b": [1]}),
    ],
)
def test_changes_are_merged_as_rfc_7386_has_it(changes: dict[str, Any], found: dict[str, Any]) -> None:
    assert merge_documents({"a": 1, "b": {"c": 2, "d": 3}}, changes) == found


def test_deleting_removes_the_row_its_events_and_its_folder(there: World) -> None:
    row = there.submit()
    functions = there.context.requests
    folder = there.home / "requests" / str(row.id) / "job"
    folder.mkdir(parents=True)
    (folder / "job.sh").write_text("x")
    functions.delete(there.ann, row.id)
    with pytest.raises(NotFoundError):
        functions.get(there.root, row.id)
    assert not folder.parent.exists()
    assert row.id not in {event.request_id for event in functions.events(there.root, limit=5000)}
    with pytest.raises(NotFoundError):
        functions.delete(there.ann, row.id)


def test_a_request_says_why_it_waits(there: World) -> None:
    there.context.cluster.set_tenant(TenantRow("biology", quota={"requests": 0}))
    first, second = there.submit(there.bob), there.submit(there.bob)
    words = there.context.requests.get(there.bob, first.id).progress["waiting"]
    assert words.startswith("biology has 0 requests carried out at present, as many as its quota allows")
    assert "before it" in there.context.requests.get(there.bob, second.id).progress["waiting"]
    there.context.cluster.set_tenant(TenantRow("biology"))


@pytest.mark.slow
def test_a_tenant_without_money_makes_no_requests(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        there.context.cluster.set_tenant(TenantRow("physics", quota={"dollars": 3.0}))
        first = there.submit(search={"budget": "$2"})
        there.context.requests.store.change_free(
            first.id, ["pending"], {"state": "done", "cost": 2.0}, NewRequestEvent("done", "")
        )
        with pytest.raises(QuotaError, match=r"it may cost \$2.00, and \$1.00 are left of the quota of \$3.00"):
            there.submit(search={"budget": "$2"})
        assert there.submit(search={"budget": "$1"}).plan["dollars"] == 1.0
        # What is deleted goes on counting.
        there.context.requests.delete(there.ann, first.id)
        with pytest.raises(QuotaError):
            there.submit(search={"budget": "$2"})
        there.context.cluster.set_tenant(TenantRow("physics", quota={"dollars": 2.0}))
        with pytest.raises(QuotaError, match="it would cost more"):
            there.submit()
        assert there.submit(there.bob).tenant == "biology"


def test_logs_and_files_before_there_is_a_run(there: World) -> None:
    row = there.submit()
    functions = there.context.requests
    part = functions.log(there.ann, row.id)
    assert (part.text, part.next, part.ended) == ("", 0, False)
    assert functions.files(there.ann, row.id) == []
    with pytest.raises(NotFoundError, match="there is no log 'passwd'"):
        functions.log(there.ann, row.id, "passwd")
    with pytest.raises(NotFoundError, match="no files yet"):
        functions.file(there.ann, row.id, "stdout")
    assert functions.status(there.ann, row.id)["status"] == "pending"
