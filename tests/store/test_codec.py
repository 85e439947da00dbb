"""Documents of trials and runs."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.strategies import data, runs, trials

from tradewind.errors import RecordError
from tradewind.problem import Configuration, MachineLease, Offer, Proposal, Run, RunPreemption, TakenMachines, Trial
from tradewind.store import codec
from tradewind.testing.stores import run, trial


@pytest.mark.parametrize(
    ("document", "read"),
    [
        ({"a": [1, None, 0.5]}, {"a": [1, None, 0.5]}),
        ({"\U0001f600": "\\ud800 as it stands"}, {"\U0001f600": "\\ud800 as it stands"}),
        ({"a\ud800": {"b": "\udfff\U0001f600"}}, {"a?": {"b": "?\U0001f600"}}),
    ],
)
def test_half_a_character_is_a_question_mark(document: Any, read: Any) -> None:
    assert codec.loads(codec.dumps(document)) == read


@pytest.mark.slow
@given(trials)
def test_a_trial_survives_strict_json(given_: Trial) -> None:
    text = json.dumps(codec.encode_nonfinite(codec.trial_to_json(given_)), allow_nan=False)
    assert repr(codec.trial_from_json(codec.decode_nonfinite(json.loads(text)))) == repr(given_)


@pytest.mark.slow
@given(runs)
def test_a_run_survives_strict_json(given_: Run) -> None:
    text = json.dumps(codec.encode_nonfinite(codec.run_to_json(given_)), allow_nan=False)
    assert repr(codec.run_from_json(codec.decode_nonfinite(json.loads(text)))) == repr(given_)


@pytest.mark.slow
@given(st.lists(data, max_size=3))
def test_loose_undoes_strict(document: Any) -> None:
    plain = codec.encode_nonfinite(document)
    json.dumps(plain, allow_nan=False)
    assert repr(codec.decode_nonfinite(plain)) == repr(document)


def test_no_field_of_a_trial_or_a_run_is_forgotten() -> None:
    goes_on = trial(0, 1.0)
    goes_on = replace(goes_on, proposal=replace(goes_on.proposal, origin=3))
    document = codec.trial_to_json(goes_on)
    assert codec.trial_from_json(document) == goes_on
    assert "origin" not in codec.trial_to_json(trial(0, 1.0))["proposal"]
    assert set(document) == {field.name for field in fields(Trial)} | {"configuration"}
    assert {*document["proposal"], "configuration"} == {field.name for field in fields(Proposal)}
    assert set(document["offer"]) == {field.name for field in fields(Offer)}
    lease, taken = MachineLease("r", 1.0, 9.0, 2.0, offer_key="o", taken_by="s"), TakenMachines("r", 1.0, 9.0)
    document = codec.run_to_json(kept := replace(run(0), lease=lease, taken=taken))
    assert set(document) == {field.name for field in fields(Run)} - {"preemption"}
    assert codec.run_from_json(document) == kept
    document = codec.run_to_json(taken_for := replace(kept, preemption=RunPreemption("physics", "taker", 3.0, 0.5)))
    assert set(document) == {field.name for field in fields(Run)}
    assert set(document["preemption"]) == {field.name for field in fields(RunPreemption)}
    assert codec.run_from_json(document) == taken_for


def test_the_document_shares_nothing_with_the_trial() -> None:
    given_ = trial(0, 1.0)
    codec.trial_to_json(given_)["offer"]["facts"]["ghz"] = 99
    assert given_ == trial(0, 1.0)


def test_any_mapping_and_numpy_numbers_are_written() -> None:
    why: Any = MappingProxyType({"ei": np.float64(0.5), "count": np.int64(3)})
    given_ = replace(trial(0), proposal=Proposal(Configuration({"a": 1}), why=why))
    document = json.loads(codec.dumps(codec.trial_to_json(given_)))
    assert document["proposal"]["why"] == {"ei": 0.5, "count": 3}
    assert json.loads(codec.dumps({"deep": MappingProxyType({"a": 1})})) == {"deep": {"a": 1}}


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="set cannot be written"):
        codec.dumps({"a": {1, 2}})


@pytest.mark.parametrize("key", ["number", "state", "configuration", "proposal", "offer", "observation", "spent"])
def test_a_trial_without_a_field(key: str) -> None:
    document = codec.trial_to_json(trial(0))
    del document[key]
    with pytest.raises(RecordError, match=f"no trial: it has no '{key}'"):
        codec.trial_from_json(document)


def test_a_run_with_a_state_that_there_is_not() -> None:
    with pytest.raises(RecordError, match="no run: 'splendid'"):
        codec.run_from_json({**codec.run_to_json(run(0)), "state": "splendid"})


def test_keys_of_a_newer_version_are_ignored() -> None:
    document = codec.trial_to_json(trial(0, 1.0))
    for part in (document, document["proposal"], document["offer"], document["observation"]):
        part["from_the_future"] = 1
    assert codec.trial_from_json(document) == trial(0, 1.0)
