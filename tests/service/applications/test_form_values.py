"""Reading what was typed into a form."""

from __future__ import annotations

import base64
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share

from tradewind.errors import FormError
from tradewind.service.applications.document_model import ApplicationModel
from tradewind.service.applications.form import schema_of
from tradewind.service.applications.form_values import read_values
from tradewind.service.applications.uploaded_files import FileValue

FIELDS = ApplicationModel.model_validate(
    {
        "fields": {
            "cells": {"type": "integer", "min": 2, "max": 100, "step": 2, "default": 10},
            "ratio": {"type": "number", "min": 0.0, "max": 1.0, "unit": "of all"},
            "label": {"type": "text", "max": 20, "default": ""},
            "notes": {"type": "text", "lines": True, "default": ""},
            "method": {"type": "choice", "choices": ["cg", "gmres", 2, True], "default": "cg"},
            "restart": {"type": "integer", "min": 1, "max": 99, "default": 30, "when": {"method": "gmres"}},
            "verbose": {"type": "boolean", "default": False},
            "mesh": {"type": "file", "required": False, "max": 0.001, "suffix": ".msh"},
        }
    }
).fields


def read(**typed: Any) -> dict[str, Any]:
    return read_values(FIELDS, {"ratio": 0.5, **typed})


def wrong(**typed: Any) -> dict[str, str]:
    with pytest.raises(FormError) as caught:
        read(**typed)
    return dict(caught.value.fields)


def test_what_is_left_alone_has_its_default() -> None:
    values = read()
    assert {name: values[name] for name in values if name != "mesh"} == {
        "cells": 10,
        "ratio": 0.5,
        "label": "",
        "notes": "",
        "method": "cg",
        "restart": 30,
        "verbose": 0,
    }
    assert values["mesh"] == FileValue.none(".msh")


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("cells", "12", 12),
        ("cells", " 12 ", 12),
        ("cells", 12.0, 12),
        ("cells", "1e1", 10),
        ("cells", "", 10),
        ("cells", None, 10),
        ("ratio", "0.25", 0.25),
        ("label", "a b", "a b"),
        ("label", 5, "5"),
        ("notes", "one\r\ntwo", "one\ntwo"),
        ("method", "gmres", "gmres"),
        ("method", "2", 2),
        ("method", 2.0, 2),
        ("method", "true", 1),
        ("method", True, 1),
        ("verbose", "on", 1),
        ("verbose", "off", 0),
        ("verbose", True, 1),
        ("verbose", 0, 0),
    ],
)
def test_values_are_read_by_their_type(name: str, typed: Any, value: Any) -> None:
    found = read(**{name: typed})[name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("cells", "1", "1 is below 2"),
        ("cells", 102, "102 is above 100"),
        ("cells", 1e12, "1000000000000 is above 100"),
        ("cells", 5, "5 is none of 2, then every 2"),
        ("cells", 4.5, "none of 2, then every 2"),
        ("cells", "many", "'many' is no number"),
        ("cells", True, "True is no number"),
        ("cells", [4], "[4] is no number"),
        ("cells", "9" * 400, "is no number"),
        ("ratio", "nan", "'nan' is no number"),
        ("ratio", "inf", "'inf' is no number"),
        ("ratio", "", "is missing"),
        ("ratio", 1.5, "1.5 is above 1 of all"),
        ("label", "a\nb", "has a line break"),
        ("label", "a\0b", "control character"),
        ("label", "a\u2028b", "control character"),
        ("label", "\ud800", "control character"),
        ("label", "x" * 21, "has 21 characters, more than 20"),
        ("label", {"a": 1}, "is no text"),
        ("notes", "a\x1bb", "control character"),
        ("notes", "x" * 10_001, "more than 10000"),
        ("method", "bicg", "'bicg' is none of the choices (there are: cg, gmres, 2, True)"),
        ("method", ["cg"], "is none of the choices"),
        ("verbose", "maybe", "neither true nor false"),
        ("mesh", "text", "is no file"),
        ("mesh", {"name": "a", "base64": "*"}, "is no base64 text"),
        ("mesh", {"name": "a", "text": "x" * 2000}, "has 0.0 MiB, more than 0.001"),
        ("mesh", {"file": "sha256:zz"}, "is no file"),
        ("mesh", {"file": "sha256:" + "0" * 64, "size": -1}, "is no file"),
        ("mehs", 1, "there is no such field; did you mean 'mesh'?"),
    ],
)
def test_each_wrong_field_has_one_message(name: str, typed: Any, words: str) -> None:
    found = wrong(**{name: typed})
    assert list(found) == [name]
    assert words in found[name]


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert set(wrong(cells=1, label="a\nb", verbose="x", other=1)) == {"cells", "label", "verbose", "other"}


def test_a_hidden_field_has_its_default_whatever_was_sent() -> None:
    assert read(method="cg", restart="nonsense")["restart"] == 30
    assert read(method="gmres", restart="7")["restart"] == 7
    assert "restart" in wrong(method="gmres", restart="nonsense")


def test_what_begins_a_word_is_no_option() -> None:
    assert read_values(FIELDS, {"ratio": 1, "label": "-x"})["label"] == "-x"
    with pytest.raises(FormError, match="label: begins with a '-': the program would take it for an option"):
        read_values(FIELDS, {"ratio": 1, "label": "-x"}, words={"label"})


def test_files_come_as_text_as_base64_or_as_one_that_is_there() -> None:
    first = read(mesh={"name": "a/../b\\my mesh?.msh", "text": "points"})["mesh"]
    assert (first.name, first.size, first.suffix, first.data) == ("my mesh_.msh", 6, ".msh", b"points")
    second = read(mesh={"name": "m", "base64": base64.b64encode(b"points").decode()})["mesh"]
    assert second.digest == first.digest
    third = read(mesh=first.to_json())["mesh"]
    assert (third.digest, third.size, third.data) == (first.digest, 6, None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=share(50))
@given(st.dictionaries(st.sampled_from([*FIELDS, "other"]), _JSON))
def test_anything_is_read_or_refused(typed: dict[str, Any]) -> None:
    try:
        values = read_values(FIELDS, typed)
    except FormError as error:
        assert error.fields
        assert all(error.fields.values())
        return
    assert list(values) == list(FIELDS)
    assert 2 <= values["cells"] <= 100  # type: ignore[operator]
    assert values["cells"] % 2 == 0  # type: ignore[operator]
    assert "\n" not in str(values["label"])
    assert read_values(FIELDS, values) == values, "reading is done once"


@pytest.mark.slow
@settings(max_examples=share(50))
@given(st.dictionaries(st.sampled_from(list(FIELDS)), _JSON))
def test_what_the_schema_takes_is_read(typed: dict[str, Any]) -> None:
    """But for what no schema can say: control characters, steps from a least value, and the sizes of files."""
    schema = schema_of("Solver", FIELDS)
    try:
        jsonschema.Draft202012Validator(schema).validate(typed)
    except jsonschema.ValidationError:
        return
    try:
        read_values(FIELDS, typed)
    except FormError as error:
        said = {"control character", "then every", "is no file", "is no base64 text", "MiB"}
        assert all(any(words in message for words in said) for message in error.fields.values()), error
