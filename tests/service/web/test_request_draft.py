"""The form of a new request, as it is typed in and as it comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import FormData

from tradewind.problem.parameter import Categorical
from tradewind.service.applications.form import ApplicationForm, ApplicationFormField
from tradewind.service.web import request_draft as drafts
from tradewind.service.web.request_draft import BEST, OWN, RequestDraft

FORM = ApplicationForm(
    application="plate@2",
    tenant="",
    title="Plate",
    description="",
    fields=(
        ApplicationFormField("size", "integer", "Size", default=200),
        ApplicationFormField("label", "text", "Label", default=""),
        ApplicationFormField("pictures", "boolean", "Pictures", default=False),
        ApplicationFormField("start", "file", "Start", required=False),
    ),
    space=("instance", "threads"),
    objective="minimise cost",
    deadline=None,
    backend="",
    stops="",
    schema={},
)


def test_a_fresh_form_has_the_defaults() -> None:
    draft = drafts.new_draft(FORM, email=True)
    assert draft.parameters == {"size": 200, "label": "", "pictures": False}
    assert (draft.kind, draft.choice, draft.email) == ("run", BEST, True)
    assert draft.key != drafts.new_draft(FORM, email=True).key


def test_what_was_typed_becomes_a_document() -> None:
    fields = {
        "p.size": "500",
        "p.pictures": "on",
        "choice": OWN,
        "c.instance": "local.c1",
        "c.threads": "2",
        "budget": " $1 ",
        "deadline": "20m",
        "name": "mine",
        "email": "on",
        "webhook": "https://example.org/x",
        "k.start": json.dumps({"file": "sha256:" + "0" * 64, "name": "a.csv", "size": 4}),
        "key": "k1",
        "p.unknown": "left out",
    }
    draft = drafts.draft_of_form(FORM, FormData(fields))
    assert draft.errors() == {}
    assert draft.key == "k1"
    assert draft.files["start"]["name"] == "a.csv"
    assert draft.document(FORM.application, draft.parameters) == {
        "application": "plate@2",
        "parameters": {"size": "500", "pictures": True},
        "configuration": {"instance": "local.c1", "threads": "2"},
        "budget": "$1",
        "resources": {"time": "20m"},
        "name": "mine",
        "notify": {"email": True, "webhook": "https://example.org/x"},
    }


@pytest.mark.parametrize("typed", ["1.10", "08", "1e3", "nan", "2"])
def test_an_own_configuration_is_sent_as_it_was_chosen(typed: str) -> None:
    space = Categorical(name="version", values=("1.1", "1.10", "08", "1e3", "nan", "2"))
    configuration = drafts.draft_of_form(FORM, FormData({"choice": OWN, "c.version": typed})).configuration()
    assert configuration is not None
    assert space.coerce(configuration["version"]) == typed


def test_a_search_leaves_the_configuration_open() -> None:
    fields = {"kind": "search", "budget": "$2", "deadline": "30m", "choice": '{"instance": "local.c1"}'}
    document = drafts.draft_of_form(FORM, FormData(fields)).document("plate@2", {})
    assert document["search"] == {"budget": "$2", "deadline": "30m"}
    assert not {"configuration", "budget", "resources"} & set(document)


def test_a_search_tries_first_what_stands_there_line_by_line() -> None:
    text = " threads=2, instance=local.c1 \r\n\r\nthreads=08\n"
    draft = drafts.draft_of_form(FORM, FormData({"kind": "search", "budget": "$2", "try_first": text}))
    assert draft.errors() == {}
    document = draft.document("plate@2", {})
    assert document["search"]["try_first"] == [{"threads": "2", "instance": "local.c1"}, {"threads": "08"}]
    assert drafts.draft_of_request(FORM, document).try_first == "threads=2, instance=local.c1\nthreads=08"


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"kind": "search"}, {"budget": "say what the search may spend, such as $2"}),
        ({"budget": "much"}, {"budget": "'much' is not an amount of money: write $2.50 or 2.5"}),
        ({"budget": "0"}, {"budget": "must be more than nothing"}),
        (
            {"deadline": "soon"},
            {"deadline": "'soon' is not a duration: write 90s, 45m, 2h30m or a number of seconds"},
        ),
        (
            {"kind": "search", "budget": "$2", "try_first": "threads=2\nthreads"},
            {"try_first": "threads: it is not NAME=VALUE,NAME=VALUE: write workers=4"},
        ),
        (
            {"try_first": "threads=2"},
            {"try_first": "only a search tries configurations: choose one, or leave this out"},
        ),
        ({}, {}),
    ],
)
def test_what_is_wrong_is_said_by_field(fields: dict[str, str], wrong: dict[str, str]) -> None:
    assert drafts.draft_of_form(FORM, FormData(fields)).errors() == wrong


@pytest.mark.parametrize("choice", ["", "nonsense", "[1]", "3", "[" * 200_000, BEST])
def test_a_choice_that_is_none_leaves_it_to_the_proposal(choice: str) -> None:
    assert drafts.draft_of_form(FORM, FormData({"choice": choice})).configuration() is None


def test_a_proposed_configuration_is_taken_as_it_is() -> None:
    given = {"choice": '{"instance": "local.c1", "threads": 2}', "c.threads": "4"}
    assert drafts.draft_of_form(FORM, FormData(given)).configuration() == {"instance": "local.c1", "threads": 2}


_WORDS = st.text(max_size=20).map(str.strip)


@pytest.mark.slow
@given(
    kind=st.sampled_from(["run", "search"]),
    budget=st.sampled_from(["", "$2", "1.5"]),
    deadline=st.sampled_from(["", "30m", "90"]),
    results=_WORDS,
    webhook=_WORDS,
    name=_WORDS,
    email=st.booleans(),
    try_first=st.sampled_from(["", "threads=2", "threads=2, instance=local.c1\nthreads=4"]),
    own=st.fixed_dictionaries({}, optional={"instance": st.just("local.c1"), "threads": st.integers(1, 4).map(str)}),
    label=st.text(max_size=20),
)
def test_a_request_can_be_made_again(kind: str, own: dict[str, str], label: str, **rest: Any) -> None:
    draft = RequestDraft(
        parameters={**FORM.defaults, "label": label}, kind=kind, own=own, choice=OWN if own else BEST, **rest
    )
    document = draft.document(FORM.application, draft.parameters)
    assert drafts.draft_of_request(FORM, document).document(FORM.application, draft.parameters) == document
    assert drafts.draft_of_request(FORM, document).parameters == draft.parameters


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ({}, []),
        ({"parameters": {"size": 300}, "name": "mine", "backend": "cloud", "notify": {"email": True}}, []),
        ({"configuration": {"instance": "local.c1", "threads": 2}, "budget": 2.5, "resources": {"time": None}}, []),
        ({"search": {"budget": {"dollars": 2}, "deadline": "30m"}, "results": None, "name": None}, []),
        ({"resources": {"memory": 6000, "cpu": 2, "time": "30m"}}, ["resources.cpu", "resources.memory"]),
        ({"configuration": {"threads": "2"}}, []),
        (
            {"search": {"budget": {"trials": 2, "dollars": 1}, "parallel": 2, "objective": "runtime", "seed": 1}},
            ["search.budget.trials", "search.objective", "search.parallel", "search.seed"],
        ),
        ({"search": {"budget": 2, "try_first": [{"threads": 2}, {"threads": 4, "instance": "local.c1"}]}}, []),
        ({"search": {"budget": 2, "try_first": [{"threads": "2, instance=3"}]}}, ["search.try_first"]),
        ({"search": {"budget": 2, "try_first": [{"threads": "2\n4"}]}}, ["search.try_first"]),
        ({"search": {"budget": {"trials": 2}}, "cluster": "lab"}, ["cluster", "search.budget.trials"]),
        ({"search": {}, "sorcerer": "random"}, ["search", "sorcerer"]),
    ],
)
def test_what_the_form_would_lose_is_told(said: dict[str, Any], keys: list[str]) -> None:
    assert drafts.beyond(FORM, {"application": "plate@1", **said}) == keys


_KEYS = ("parameters", "search", "notify", "configuration", "resources", "budget", "backend", "results", "name")
_ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(_KEYS), _ANYTHING))
def test_no_document_of_an_earlier_request_breaks_the_form(document: dict[str, Any]) -> None:
    draft = drafts.draft_of_request(FORM, document)
    assert isinstance(draft.errors(), dict)
    assert all(drafts.shown_value(one, draft) is not None for one in FORM.fields)
    assert isinstance(drafts.beyond(FORM, document), list)
