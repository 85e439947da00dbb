from __future__ import annotations

import inspect
import re

import pytest

from tradewind import errors
from tradewind.errors import (
    BusyError,
    CredentialsError,
    DeployError,
    InputError,
    InterpretationError,
    NotFoundError,
    SpecError,
    TradewindError,
)

ALL = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, TradewindError)]


def test_an_error_is_one_line_of_what_where_and_what_to_do() -> None:
    assert str(TradewindError("it is wrong")) == "it is wrong"
    assert str(TradewindError("it is wrong", hint="do this")) == "it is wrong (do this)"
    assert str(SpecError("it is wrong", hint="do this", file="job.yaml", line=3)) == "job.yaml:3: it is wrong (do this)"
    assert str(InputError("it is wrong", file="job.yaml")) == "job.yaml: it is wrong"
    assert str(InputError("it is wrong", line=3)) == "it is wrong"
    assert InterpretationError("empty", "x").reason == "empty"
    assert DeployError("x").retryable
    assert not DeployError("x", retryable=False).retryable
    assert not CredentialsError("x").retryable
    assert (BusyError("x", wait=2.0).wait, NotFoundError("x").wait) == (2.0, 0.0)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_is_in_the_tree_with_its_exit_code(kind: type[TradewindError]) -> None:
    tree = inspect.getdoc(errors) or ""
    match = re.search(rf"\b{kind.__name__}\b[ ]*(\d+)?", tree)
    assert match is not None
    if match[1]:
        assert kind.exit_code == int(match[1])
    else:
        assert kind.exit_code == kind.__mro__[1].exit_code  # type: ignore[attr-defined]
    assert inspect.getdoc(kind)


def test_codes_are_different() -> None:
    written = [kind.__dict__["code"] for kind in ALL if "code" in kind.__dict__]
    assert len(set(written)) == len(written)
