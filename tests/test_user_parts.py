"""Parts that are classes in files of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.engine.search_builder import build_problem, build_searcher
from tradewind.errors import PluginError, SpecError
from tradewind.problem.job_spec.spec import JobSpec, parse_spec

SEARCHER = """
from neighbour import NUMBER
from tradewind.plugins import Settings
from tradewind.searcher.random import RandomSearcher


class MineSettings(Settings):
    start: int = NUMBER


class Mine(RandomSearcher):
    \"\"\"Searches as I like.\"\"\"

    Settings = MineSettings


def function(*_):
    return None


class Stranger:
    pass
"""

JOB = """
name: own
job: {command: "true {{ x }}"}
space: {x: 1..9}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "mine.py").write_text(SEARCHER)
    (tmp_path / "parts" / "neighbour.py").write_text("NUMBER = 7\n")
    return tmp_path


def spec_of(folder: Path, text: str) -> JobSpec:
    return parse_spec(JOB + text, base=folder)


@pytest.mark.parametrize("written", ["parts/mine.py:Mine", "{use: 'parts/mine.py:Mine', start: 3}"])
def test_a_searcher_in_a_file_is_seen_from_the_yaml(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    spec = spec_of(folder, f"searcher: {written}\n")
    searcher = build_searcher(spec, build_problem(spec, folder))
    assert type(searcher).__name__ == "Mine"
    assert searcher.settings.start == (3 if "start" in written else 7)  # type: ignore[attr-defined]
    again = JobSpec.from_json(spec.document(), base=Path("/"))
    assert again.searcher.name == f"{folder}/parts/mine.py:Mine", "also for whoever reads the record elsewhere"


def test_where_the_file_lies_is_no_part_of_the_problem(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "parts").mkdir()
    for file in (folder / "parts").iterdir():
        if file.is_file():
            (other / "parts" / file.name).write_text(file.read_text())
    text = "job: {command: 'true', workdir: /}\nselect: {use: 'parts/sel.py:Sel'}\n"
    for place in (folder, other):
        (place / "parts" / "sel.py").write_text(
            "from tradewind.selector.exact import ExactSelector\nclass Sel(ExactSelector):\n    pass\n"
        )
    job = JOB.replace('job: {command: "true {{ x }}"}\n', "")
    one, two = (parse_spec(job + text, base=place) for place in (folder, other))
    assert one.selector.name != two.selector.name
    assert one.problem_key == two.problem_key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("searcher: parts/none.py:Mine", "searcher: the searcher '.*none.py:Mine' does not load: there is no file"),
        ("searcher: parts/mine.py:Other", "searcher: .* does not load: .*mine.py has no Other"),
        ("searcher: parts/mine.py:Stranger", "no class of a searcher .derive it from tradewind.searcher.base.Searcher"),
        ("searcher: parts/mine.py:function", "no class of a searcher"),
        ("deploy: {runner: 'parts/mine.py:Mine'}", "deploy.runner: .* is no class of a runner"),
        ("interpret: parts/mine.py:function", "a function is written .use: python, function:"),
        ("searcher: {use: 'parts/mine.py:Mine', begin: 3}", "begin"),
        ("searcher: mine", "there is no searcher named 'mine' .*a class of your own is FILE.py:CLASS"),
        ("deploy: {provisioner: mine}", "there is no provisioner named 'mine' .*a class of your own is FILE.py:CLASS"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(folder: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        spec_of(folder, text + "\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", plugins.KINDS)
def test_each_kind_knows_its_base(folder: Path, kind: str) -> None:
    with pytest.raises(PluginError, match=f"is no class of a {kind}"):
        plugins.load(kind, f"{folder}/parts/mine.py:Stranger")
    for name in plugins.names(kind):
        part = plugins.load(kind, name)
        assert plugins.load(kind, f"{part.__module__}:{part.__name__}") is part
        assert part.name == name, "it keeps its name"


def test_a_class_that_fails_says_where(folder: Path) -> None:
    (folder / "bad.py").write_text("x = 1\nraise ValueError('no')\n")
    with pytest.raises(PluginError, match=r"bad.py:2: ValueError: no"):
        plugins.load("searcher", f"{folder}/bad.py:Mine")


def test_a_catalogue_in_a_file_sells_its_offers(folder: Path) -> None:
    (folder / "cellar.py").write_text(
        "from tradewind.problem import Offer\n"
        "from tradewind.selector.catalogue.base import Catalogue\n"
        "class Cellar(Catalogue):\n"
        "    def offers(self):\n"
        "        return [Offer('cellar', 'big', 64, 256, 0.5)]\n"
    )
    text = "catalogues: {'cellar.py:Cellar': {}}\n"
    job = JOB.replace("space: {x: 1..9}", "space: {x: 1..9, instance: {provider: cellar}}")
    problem = build_problem(parse_spec(job + text, base=folder), folder)
    assert problem.space["instance"].describe() == "big"
