from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field
from rich.console import Console

from tradewind import plugins
from tradewind.cli.app import run
from tradewind.cli.plugins import part_rows, setting_rows, type_words
from tradewind.cli.study.export import ExportFormat
from tradewind.errors import PluginError
from tradewind.plugins import Settings


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution of somebody else with a searcher that works, one that does not, and one of a name twice."""
    package = tmp_path / "site"
    info = package / "outside-1.5.dist-info"
    info.mkdir(parents=True)
    (package / "outside_part.py").write_text(
        "from typing import Literal\n"
        "from pydantic import Field\n"
        "from tradewind.searcher.base import NothingLeft, ProposesMany, Searcher\n"
        "from tradewind import plugins\n\n"
        "class OutsideSearcher(Searcher, ProposesMany):\n"
        "    '''Proposes [nothing] at all.'''\n\n"
        "    class Settings(plugins.Settings):\n"
        "        mood: Literal['good', 'bad'] = Field('good', description='How it feels.')\n"
        "        rate: float = Field(gt=0, description='How quick it is.')\n\n"
        "    def ask(self, state, count=1):\n"
        "        return NothingLeft('it never has')\n\n"
        "class PlainSearcher(OutsideSearcher):\n"
        "    Settings = plugins.Settings\n"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(
        "[tradewind.searchers]\noutside = outside_part:OutsideSearcher\n"
        "plain = outside_part:PlainSearcher\nshattered = no_such_module:Searcher\n"
    )
    monkeypatch.syspath_prepend(str(package))
    plugins._everything.cache_clear()
    plugins._load.cache_clear()
    yield
    plugins._everything.cache_clear()
    plugins._load.cache_clear()


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run(["plugins", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_all_parts_are_listed_in_the_order_of_a_trials_way(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _json(capsys)
    assert [row["kind"] for row in rows] == sorted((row["kind"] for row in rows), key=plugins.KINDS.index)
    found = {(row["kind"], row["name"]): row for row in rows}
    gp = found["searcher", "gp"]
    assert gp["package"] == "tradewind" and gp["version"] and gp["summary"] and not gp["broken"]
    assert set(found) >= {("runner", "process"), ("interpreter", "regex"), ("store", "sql"), ("catalogue", "local")}


def test_table_has_a_line_for_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--kind", "selector"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in plugins.names("selector"):
        assert sum(line.split()[:2] == ["selector", name] for line in lines) == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 100, 110, 120])
def test_no_name_of_a_capability_is_broken_in_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    monkeypatch.setattr("tradewind.cli.plugins._console", lambda: console)
    assert run(["plugins"]) == 0
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = Counter(word.strip(",") for line in lines for word in line.split())
    named = Counter(name for row in part_rows() for name in row.capabilities)
    assert {name: words[name] for name in named} == named


def test_kind_restricts(capsys: pytest.CaptureFixture[str]) -> None:
    assert {row["kind"] for row in _json(capsys, "--kind", "interpreter")} == {"interpreter"}


@pytest.mark.usefixtures("outside")
def test_part_of_another_package_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = _json(capsys, "outside")
    assert (row["package"], row["version"], row["capabilities"]) == ("outside", "1.5", ["ProposesMany"])
    assert row["settings"] == [
        {
            "name": "mood",
            "type": "one of good, bad",
            "default": '"good"',
            "required": False,
            "description": "How it feels.",
        },
        {"name": "rate", "type": "number", "default": "", "required": True, "description": "How quick it is."},
    ]


@pytest.mark.usefixtures("outside")
def test_part_is_shown_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "outside"]) == 0
    shown = capsys.readouterr().out
    for words in ("searcher outside (outside 1.5)", "Proposes [nothing] at all.", "ProposesMany", "required", "good"):
        assert words in shown


@pytest.mark.usefixtures("outside")
def test_part_without_settings_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "plain"]) == 0
    assert "It has no settings." in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("outside")
def test_broken_part_is_shown_with_its_reason_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = _json(capsys, "shattered")
    assert "no_such_module" in row["broken"] and row["package"] == "outside"
    assert run(["plugins"]) == 0
    assert "DOES NOT LOAD" in capsys.readouterr().out
    assert run(["plugins", "shattered"]) == 0
    assert "does not load" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["exaxt"], "there is no part named 'exaxt' (did you mean 'exact'?)"),
        (["xyzzy", "--kind", "store"], "there is no store named 'xyzzy' (installed: sql)"),
        (["--kind", "wizard"], "there is no kind of part named 'wizard' (kinds are searcher"),
    ],
)
def test_unknown_names_are_one_clear_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", *words]) == PluginError.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err and captured.err.count("\n") == 1


@pytest.mark.usefixtures("outside")
def test_origin_names_distribution_and_version() -> None:
    assert plugins.origin("searcher", "outside") == ("outside", "1.5")
    assert plugins.origin("searcher", "gp")[0] == "tradewind"
    assert plugins.origin("searcher", "nobody") == ("", "")


def test_name_may_stand_for_several_kinds() -> None:
    names = [name for kind in plugins.KINDS for name in plugins.names(kind)]
    for name in set(names):
        assert len(part_rows(name=name)) == names.count(name)


class Several(Settings):
    words: list[str] = Field(default=[], description="Words.")
    table: dict[str, float] = Field(default_factory=dict, description="Numbers by name.")
    path: Path | None = Field(default=None, description="A file.")
    either: int | str = Field(default=3, description="This or that.")
    pair: tuple[int, ...] = Field(default=(1, 2), description="Two.")
    free: Any = Field(default=None, description="Whatever.")
    kind: Literal["a", "b"] | None = Field(default=None, alias="class", description="Which.")


def test_settings_are_described_in_words() -> None:
    described = {row.name: (row.type, row.default) for row in setting_rows(Several)}
    assert described == {
        "words": ("list of text", "[]"),
        "table": ("mapping of number", "{}"),
        "path": ("path", "null"),
        "either": ("whole number or text", "3"),
        "pair": ("list of whole number", "[1, 2]"),
        "free": ("anything", "null"),
        "class": ("one of a, b", "null"),
    }


def test_of_an_enumeration_its_choices_are_shown() -> None:
    """As Literals are: nobody can type the name of a class."""
    assert type_words(ExportFormat | None) == "one of csv, json, jsonl, records, parquet, optuna"


def test_nested_models_are_called_by_their_name() -> None:
    assert type_words(list[Several]) == "list of Several"


def test_which_go_together(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = _json(capsys, "--matrix")
    assert set(found) >= {"process", "replay"}
    assert found["process"]["none"] == {"together": True, "why": "", "workflows": True}
    assert not any(cell["workflows"] and cell["why"] for row in found.values() for cell in row.values())
    assert found["ssh"]["terraform"]["workflows"] and found["docker"]["libvirt"]["workflows"]
    assert not found["replay"]["none"]["workflows"] and not found["script"]["none"]["workflows"]
    assert all(set(row) == set(found["process"]) for row in found.values())
    assert all(cell["together"] is not bool(cell["why"]) for row in found.values() for cell in row.values())
    assert run(["plugins", "--matrix"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].split() == ["runner", *found["process"]]
    apart = [f"{made} + {runner}" for runner, row in found.items() for made, cell in row.items() if cell["why"]]
    [flows] = [line for line in lines if line.startswith("workflow run carries out plans on ")]
    assert "terraform + ssh" in flows and "none + process" in flows and "replay" not in flows
    assert all(any(pair in line for line in lines[2 + len(found) :]) for pair in apart)


def test_which_go_together_fits_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    assert run(["plugins", "--matrix"]) == 0
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    row = next(line for line in lines if line.split()[:1] == ["process"])
    assert row.count("yes") + row.count("-") == len(plugins.names("provisioner"))
    assert max(map(len, lines)) <= 40


def test_the_matrix_is_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "process", "--matrix"]) == 3
    assert "leave the part" in capsys.readouterr().err
