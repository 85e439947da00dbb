"""Documents of requests: what is read, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import InputError, TradewindError
from tradewind.service.requests.request_document import fill_request, read_document

FIGURE: dict[str, Any] = {
    "resources": {"nodes": 2, "memory": 4096, "cpu": 4, "time": 100},
    "scheduler": {"name": "htcondor"},
    "backend": {"name": "opennebula", "owner": {"gid": 1, "uid": 196}},
    "template": "executable = run.sh\narguments = {{ key1 }}\nqueue\n",
    "user_data": {"key1": "value1"},
    "hooks": [{"stage": "submitting", "condition": "before", "name": "download-input-data.sh"}],
}


def test_our_own_document() -> None:
    asked = read_document(
        {
            "application": "matrix@2",
            "parameters": {"size": 4000},
            "search": {"budget": "$2", "deadline": "30m", "parallel": 2},
            "notify": {"email": True},
            "name": None,
        }
    )
    own = asked.own
    assert own is not None
    assert asked.model is own
    assert own.search is not None
    assert (own.search.budget.dollars, own.search.deadline, own.search.parallel) == (2.0, 1800.0, 2)
    assert (own.application, own.parameters, own.notify.email) == ("matrix@2", {"size": 4000}, True)


def test_figure_4_is_told_by_its_template() -> None:
    asked = read_document(FIGURE)
    figure = asked.figure
    assert figure is not None
    assert asked.model is figure
    assert figure.resources.given() == {"nodes": 2, "memory": 4096.0, "cpu": 4.0, "time": 100.0}
    assert (figure.scheduler.name, figure.backend.name if figure.backend else "") == ("htcondor", "opennebula")
    assert figure.hooks[0].condition == "before"
    # What the server fills in comes back with a document that is sent once more.
    assert read_document(fill_request(FIGURE, "done", 5.0, [{"id": "1", "ip": "10.0.0.1"}])).figure is not None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "a request is a mapping"),
        ({}, "application"),
        ({"application": ""}, "application"),
        ({"application": "x", "serach": {}}, "unknown key 'serach' .*did you mean 'search'"),
        ({"application": "x", "search": {"budget": "much"}}, "search.budget: 'much' is not an amount of money"),
        ({"application": "x", "search": {"budget": -1}}, "search.budget"),
        ({"application": "x", "search": {"parallel": 1000}}, "search.parallel"),
        ({"application": "x", "resources": {"nodes": 0}}, "resources.nodes"),
        ({"application": "x", "resources": {"cpus": 1}}, "unknown key 'resources.cpus'|unknown key 'cpus'"),
        ({"application": "x", "cluster": "lab"}, "cluster: only a search goes to a shared cluster"),
        ({"application": "x", "search": {}, "configuration": {"nodes": 1}}, "configuration: a search finds it"),
        ({"application": "x", "search": {}, "budget": 1}, "budget: that of a search is search.budget"),
        (
            {"application": "x", "configuration": {"nodes": 1}, "resources": {"cpu": 2}},
            "resources.cpu: the configuration says it already",
        ),
        ({"application": "x", "parameters": {"a": float("nan")}}, "a request is a JSON document"),
        ({"application": "x", "parameters": {"a": object()}}, "a request is a JSON document"),
        ({"application": "x", "parameters": {"a": "x" * (5 * 2**20)}}, "a request has at most 4 MiB"),
        ({"template": ""}, "template"),
        ({**FIGURE, "hooks": [{"stage": "flying", "name": "x"}]}, "hooks.0.stage: 'flying' should be"),
        ({**FIGURE, "hooks": [{"stage": "booting", "name": ""}]}, "hooks.0.name"),
        ({**FIGURE, "resources": {"memory": "4096"}}, "resources.memory"),
        ({**FIGURE, "what": 1}, "unknown key 'what'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(document: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_document(document)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_document_nested_too_deeply() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InputError, match="nested too deeply"):
        read_document({"application": "x", "parameters": deep})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*FIGURE, "application", "parameters", "configuration", "search", "notify", "name", "cluster"])


@pytest.mark.slow
@given(st.dictionaries(KEYS, ANYTHING, max_size=6))
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    try:
        assert read_document(document).model is not None
    except TradewindError as error:
        assert error.message


def test_a_document_is_filled_in_as_paper_5_has_it() -> None:
    hosts = [{"id": "100", "ip": "10.10.0.100"}, {"id": "i-5", "ip": "10.10.0.101"}]
    found = fill_request(FIGURE, "submitting", 1512462493.7, hosts)
    assert (found["status"], found["status_updated_at"]) == ("submitting", 1512462493)
    assert found["backend"] == {
        "name": "opennebula",
        "owner": {"gid": 1, "uid": 196},
        "hosts": [{"id": 100, "ip": "10.10.0.100"}, {"id": "i-5", "ip": "10.10.0.101"}],
    }
    assert found["scheduler"] == {"name": "htcondor", "hosts": ["host-100", "i-5"]}
    own = {"application": "x"}
    assert fill_request(own, "done", 1.0, hosts) == {"application": "x", "status": "done", "status_updated_at": 1}
    assert "hosts" not in fill_request(FIGURE, "pending", 1.0, [])["backend"]
