"""Values of forms in words."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.service.applications.document_model import FieldModel
from tradewind.service.applications.parameter_words import request_words, value_words
from tradewind.store.service.request_values import RequestRow


@pytest.mark.parametrize(
    ("value", "unit", "title", "words"),
    [
        (1000, "stars", "Number of stars", "1,000"),
        (1000, "stars", "How many", "1,000 stars"),
        (12.3, "s", "Time", "12.3 s"),
        (1234567.25, "", "", "1,234,567.25"),
        (0.00001, "", "", "0.00001"),
        (0.0000125, "$", "Price", "0.00125¢"),
        (12.5, "USD", "Price", "$12.50"),
        (True, "", "", "yes"),
        ("1000", "", "", "1000"),
        ([1000, 2], "", "", "1,000, 2"),
        ({"file": "sha256:0", "name": "plate.msh", "size": 2048}, "", "", "plate.msh (2 KiB)"),
    ],
)
def test_values_have_their_units(value: Any, unit: str, title: str, words: str) -> None:
    assert value_words(value, unit, title) == words


def test_parameters_stand_in_the_order_of_the_form() -> None:
    fields = {
        "stars": FieldModel(type="integer", title="Number of stars", unit="stars"),
        "steps": FieldModel(type="integer"),
    }
    given = {"application": "galaxy", "parameters": {"later": "x", "steps": 20000, "stars": 1000}}
    row = RequestRow(1, "physics", 1, "run", given)
    found = request_words(row, "Stars in a galaxy", fields)
    assert found.application == "Stars in a galaxy"
    assert found.line() == "Number of stars: 1,000 · steps: 20,000 · later: x"
    assert request_words(row).line() == "later: x · steps: 20,000 · stars: 1,000"
    assert len(found.line(12)) == 12


def test_what_was_changed_comes_first() -> None:
    fields = {"steps": FieldModel(type="integer", default=20), "stars": FieldModel(type="integer", default=300)}
    row = RequestRow(1, "physics", 1, "run", {"parameters": {"stars": 1000, "steps": 20}})
    assert request_words(row, "", fields).line() == "stars: 1,000 · steps: 20"
