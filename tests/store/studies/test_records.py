"""Records that are wrong, and records that are right."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tradewind.errors import RecordError
from tradewind.store.studies import records
from tradewind.store.studies.record_intake import RecordIntake
from tradewind.testing.stores import run, trial


def good(number: int = 0) -> dict[str, Any]:
    tried = run(number)
    return records.trial_record(trial(number, 0.5), [tried])


def but(path: str, value: Any) -> dict[str, Any]:
    """A good record with one value changed; ``...`` takes the key away."""
    document = good()
    *folders, key = path.split(".")
    part: Any = document
    for folder in folders:
        part = part[int(folder)] if folder.isdigit() else part[folder]
    if value is ...:
        del part[key]
    else:
        part[key] = value
    return document


def test_a_record_is_read() -> None:
    (read,) = records.read_records([good(3)])
    assert read.trial == trial(3, 0.5)
    assert read.runs == (run(3),)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("record", 3, "version 3, this program reads 1 and 2 (upgrade Tradewind)"),
        ("record", "1", "version '1'"),
        ("record", ..., "no key 'record'"),
        ("number", -1, "number"),
        ("number", "0", "number"),
        ("number", 2**31, "number"),
        ("key", "a\0b", "key: it has a character that no database takes"),
        ("key", "\ud800", "key: "),
        ("runs.0.run_id", "\udfff", "runs.0.run_id: "),
        ("runs.0.exit_code", 2**63, "runs.0.exit_code"),
        ("offer.nodes", 2**31, "offer.nodes"),
        ("offer.vcpu", 10**400, "offer.vcpu: the number is too large"),
        ("configuration", {"a": 10**400}, "configuration.a"),
        ("created", 1e300, "created: it is no moment in seconds since 1970"),
        ("study", {}, "is of a study: only the first one of a file is"),
        ("number", ..., "number: Field required"),
        ("state", "splendid", "state"),
        ("key", ..., "key"),
        ("configuration", [1], "configuration"),
        ("configuration", {"a": [1]}, "configuration.a"),
        ("offer", ..., "offer"),
        ("offer.price_per_hour", -1.0, "offer.price_per_hour"),
        ("offer.price_per_hour", {"float": "nan"}, "offer.price_per_hour"),
        ("offer.vcpu", "two", "offer.vcpu"),
        ("observation.feasible", 1, "observation.feasible"),
        ("observation.cost", None, "observation.cost"),
        ("observation.cost", {"float": "nan"}, "observation.cost"),
        ("observation.cost", {"float": "inf"}, "observation.cost"),
        ("observation.runtime", -5, "observation.runtime"),
        ("observation.runtime", {"float": "nan"}, "observation.runtime"),
        ("observation.metrics", {"loss": "low"}, "observation.metrics.loss"),
        ("spent", {"float": "inf"}, "spent"),
        ("spent", True, "spent"),
        ("runs", {}, "runs"),
        ("runs.0.run_id", "", "runs.0.run_id"),
        ("runs.0.cost", -0.5, "runs.0.cost"),
        ("runs.0.runtime", -0.5, "runs.0.runtime"),
        ("runs.0.state", "executing", "the trial is succeeded, and its run 'run-0-1' is executing"),
        ("runs", [], "spent is 0.5 USD, and there is no run that it was spent on"),
        ("runs.0.fault", "mine", "runs.0.fault"),
        ("runs.0.handle", {"runner": "process"}, "runs.0.handle.run_id"),
    ],
)
def test_a_wrong_record_says_where_and_what(path: str, value: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        list(records.read_records([good(7), but(path, value)]))
    assert str(caught.value).startswith("record 2")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("document", [None, 3, "text", [], {}])
def test_what_is_no_record_at_all(document: Any) -> None:
    with pytest.raises(RecordError, match="record 1 is no record"):
        list(records.read_records([document]))


def test_a_trial_that_stands_twice() -> None:
    with pytest.raises(RecordError, match="record 3: trial number 0 stands in record 1 already"):
        list(records.read_records([good(0), good(1), good(0)]))


def test_a_run_that_stands_twice() -> None:
    other = {**good(1), "runs": [*good(0)["runs"], *good(1)["runs"]]}
    with pytest.raises(RecordError, match="record 2: the run 'run-0-1'"):
        RecordIntake([], []).take(list(records.read_records([good(0), other])))
    with pytest.raises(RecordError, match="record 1: the run 'run-0-1'"):
        RecordIntake([("run-0-1", 0)], [trial(0, 0.5)]).take(list(records.read_records([other])))


def test_null_stands_for_nan_where_a_tool_cannot_write_it() -> None:
    document = but("observation.metrics", {"loss": None})
    document["proposal"]["why"] = {"expected_cost": None}
    (read,) = records.read_records([document])
    assert read.trial.observation is not None
    assert math.isnan(read.trial.observation.metrics["loss"])
    assert math.isnan(float(read.trial.proposal.why["expected_cost"]))


def test_a_short_record_is_enough() -> None:
    keys = ("record", "number", "state", "key", "configuration", "offer")
    (read,) = records.read_records([{key: good()[key] for key in keys}])
    assert read.trial.configuration == trial(0).configuration
    assert (read.trial.spent, read.trial.observation, read.runs) == (0.0, None, ())


def test_unknown_keys_are_ignored() -> None:
    document = {**good(), "from_the_future": 1}
    document["offer"]["colour"] = "red"
    (read,) = records.read_records([document])
    assert read.trial == trial(0, 0.5)
