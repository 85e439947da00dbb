from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from pydantic import ValidationError

from tradewind import plugins
from tradewind.errors import PluginError, SpecError


class Speed(plugins.Capability):
    """Is fast."""


class GoodSettings(plugins.Settings):
    """Its settings."""

    speed: int = 3


class Good(plugins.Plugin, Speed):
    """Does something well.

    More about it.
    """

    Settings = GoodSettings

    def __init__(self, *, settings: plugins.Settings, extra: str) -> None:
        self.settings = settings
        self.extra = extra


class NoPlugin:
    """Is something else."""


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "tradewind.searchers")


POINTS = [
    point("good", f"{__name__}:Good"),
    point("good", f"{__name__}:Good"),  # the same part, seen twice
    point("missing", "tradewind_no_such_module:X"),
    point("nothing", f"{__name__}:NoSuchClass"),
    point("other", f"{__name__}:NoPlugin"),
    point("twice", f"{__name__}:Good"),
    point("twice", f"{__name__}:NoPlugin"),
]


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or __import__(__name__))
    monkeypatch.setattr(plugins, "entry_points", lambda: EntryPoints(POINTS), raising=True)
    plugins._everything.cache_clear()
    plugins._load.cache_clear()
    yield
    plugins._everything.cache_clear()
    plugins._load.cache_clear()


def test_a_part_is_loaded_by_its_name() -> None:
    part = plugins.load("searcher", "good")
    assert part.__name__ == "Good"
    assert part.name == "good"
    assert part.summary() == "Does something well."
    assert part.capabilities() == ("Speed",)
    assert plugins.names("searcher") == ["good", "missing", "nothing", "other", "twice"]
    assert plugins.names("runner") == []


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("searcher", "goodd", "no searcher named 'goodd' .did you mean 'good'"),
        ("searcher", "zzz", "installed: good, missing"),
        ("runner", "zzz", "installed: none"),
        ("sercher", "good", "no kind of part named 'sercher' .kinds are"),
        ("searcher", "missing", "does not load: ModuleNotFoundError"),
        ("searcher", "nothing", "does not load: AttributeError"),
        ("searcher", "other", "is not a class derived from Plugin"),
        ("searcher", "twice", "is taken twice: .* and .* .uninstall one of them"),
    ],
)
def test_parts_that_cannot_be_had(kind: str, name: str, message: str) -> None:
    with pytest.raises(PluginError, match=message) as caught:
        plugins.load(kind, name)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 13


def test_broken_parts_do_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tradewind.plugins"):
        assert list(plugins.load_all("searcher")) == ["good"]
    assert len(caplog.records) == 4
    assert [(row.kind, row.name) for row in plugins.broken()] == [
        ("searcher", name) for name in ("missing", "nothing", "other", "twice")
    ]


def test_a_part_is_made_with_checked_settings() -> None:
    made = plugins.create("searcher", "good", {"speed": 5}, extra="x")
    assert made.settings.speed == 5
    assert made.extra == "x"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"sped": 5}, "searcher good: unknown setting 'sped' .did you mean 'speed'"),
        ({"zzz": 5}, "known settings: speed"),
        ({"speed": "fast"}, "searcher good: speed: "),
    ]
    for given, message in wrong:
        with pytest.raises(SpecError, match=message):
            plugins.create("searcher", "good", given, extra="x")


def test_true_is_no_number_for_a_setting() -> None:
    class Wanted(plugins.Settings):
        number: float | None = None
        flag: bool = False
        either: bool | int = False

    assert Wanted(flag=True, either=True).either is True
    with pytest.raises(ValidationError, match="true is no number"):
        Wanted(number=True)
