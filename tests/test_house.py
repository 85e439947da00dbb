"""The rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest

import tradewind
from tradewind import plugins
from tradewind.plugins import KINDS, group

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILE_LINES, FUNCTION_LINES, FOLDER_MODULES = 700, 60, 16

LONG_FILES: dict[str, int] = {}
"""Files that may be longer than the rest, as ``path: limit``, each with its reason."""

LONG_FUNCTIONS = {
    "src/tradewind/store/migrations/versions/0001_first_tables.py:upgrade": 80,  # a list of columns
    "src/tradewind/store/migrations/versions/0003_service.py:upgrade": 170,  # likewise
    "src/tradewind/workflow/kernel_simulate.py:follow_plan": 70,  # one compiled loop with its arrays
    "src/tradewind/workflow/kernel_simulate.py:run_queue": 80,  # likewise
}
"""Functions likewise, as ``path:name``."""

SAME_CONCEPT = {
    "Tenant": "the REST document of a tenant and the tenant itself; the document's title is public",
}
"""Class names that two modules may use, with the reason."""

DIALECT = re.compile(
    "asking|belief|beliefs|believing|bell|belongings|board|book|due|ending|errand|flat|foresee|gate|giving_up|heed|"
    "here|keeper|kit|leave|lengths|lookout|losses|meant|own_code|parts|places|purse|reach|seats|strays|telling|"
    "together|told|underway|watch|whole"
)
"""Names that modules had and that said nothing to a stranger."""

RIDDLE = re.compile(
    r"(What|Who|Whom|Whose|Whether|How|Where|When|Which|Why|That|If|Its|It|Likewise|Nobody|They|Said|"
    r"All that|Those|Until)\b",
    re.ASCII,
)
"""First words of a docstring that only its neighbours explain."""

STATIONS = ("callback", "deployer", "interpreter", "searcher", "selector", "stopper", "store")
"""Rooms of floor 2, whose parts the engine makes by name."""

ENGINE_USES = (
    "tradewind.deployer.checkpoints",
    "tradewind.deployer.compatibility",
    "tradewind.deployer.environment",
    "tradewind.deployer.folder_versions",
    "tradewind.deployer.lifecycle",
    "tradewind.deployer.result_uploads",
    "tradewind.deployer.runner.handle",
    "tradewind.interpreter.log_reader",
    "tradewind.interpreter.reported_series",
    "tradewind.selector.offer_search",
    "tradewind.store.studies",
)
"""Modules and packages of the stations that all their parts share; besides them the engine imports `base` only."""


def _path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.slow
def test_rooms_import_downwards_only() -> None:
    program = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_room_is_in_the_layers(project: dict[str, Any]) -> None:
    """A room that is missing in the contract is not checked."""
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    listed = {name.strip() for layer in layers for name in layer.split("|")}
    there = {
        f"tradewind.{p.stem if p.is_file() else p.name}"
        for p in (ROOT / "src/tradewind").iterdir()
        if p.suffix == ".py" or (p.is_dir() and (p / "__init__.py").exists())
    }
    assert there - listed <= {"tradewind.__init__", "tradewind.__main__"}


def test_architecture_page_has_every_room_on_its_floor(project: dict[str, Any]) -> None:
    """The page's table is the contract in words: a room that moved or came is moved or added there."""
    page = (ROOT / "docs/internals/architecture.md").read_text()
    shown = re.findall(r"^\| (\d+) \| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    wanted = [[name.strip().removeprefix("tradewind.") for name in layer.split("|")] for layer in layers]
    assert [re.findall(r"\w+", rooms) for _, rooms in shown] == wanted
    floors = {room: floor for floor, rooms in shown for room in re.findall(r"\w+", rooms)}
    for room in floors:
        said = re.match(r'"""Floor (\d+):', _text_of(room))
        assert said is None or said[1] == floors[room], f"the docstring of {room} names another floor than the page"


def test_architecture_page_has_every_folder() -> None:
    """The listing explains the package: a folder that came, moved or went does so there."""
    page = (ROOT / "docs/internals/architecture.md").read_text()
    package = ROOT / "src/tradewind"
    folders = {
        path.parent.relative_to(package).as_posix() for path in SOURCES if len(path.parts) > len(package.parts) + 2
    }
    nested = {folder for folder in folders if "/" in folder and not folder.startswith("store/migrations/")}
    assert sorted(re.findall(r"^\| `(\w+(?:/\w+)+)` \|", page, re.MULTILINE)) == sorted(nested | {"store/migrations"})


@pytest.mark.parametrize("page", sorted((ROOT / "docs/internals").glob("*.md")), ids=_path)
def test_files_that_pages_of_internals_name_are_there(page: Path) -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text()))
    places = (ROOT, ROOT / "src/tradewind", *(path for path in (ROOT / "src/tradewind").iterdir() if path.is_dir()))
    assert [name for name in sorted(named) if not any((place / name).is_file() for place in places)] == []


def _text_of(room: str) -> str:
    place = ROOT / "src/tradewind" / room
    return (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text()


def test_every_kind_of_part_is_in_the_guide_for_authors() -> None:
    page = (ROOT / "docs/guides/extending.md").read_text()
    for kind in KINDS:
        assert f"| {kind} | `{group(kind)}` |" in page, f"extending.md has no row for {kind}"
        assert f"**{kind.capitalize()}.**" in page, f"extending.md does not say what a {kind} must hold"


@pytest.mark.slow
def test_engine_knows_contracts_only(project: dict[str, Any]) -> None:
    """It imports no implementation, nor anything that imports one: a part is made by its name."""
    imports = grimp.build_graph("tradewind", cache_dir=None)
    engine = {"tradewind.engine", *imports.find_descendants("tradewind.engine")}
    used = {name for module in engine for name in imports.find_modules_directly_imported_by(module)}
    from_stations = {name for name in used if name.split(".")[1] in STATIONS}
    allowed = {name for name in from_stations if name.endswith(".base") or _is_below(name, ENGINE_USES)}
    assert sorted(from_stations - allowed) == []
    points = project["project"]["entry-points"].values()
    for part in sorted({value.partition(":")[0] for values in points for value in values.values()}):
        chain = imports.find_shortest_chain("tradewind.engine", part, as_packages=True)
        assert chain is None, " imports ".join(chain or ())


def _is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_public_names_are_sorted_exist_and_are_documented() -> None:
    names = tradewind.__all__
    assert names == sorted(names)
    assert [name for name in names if not hasattr(tradewind, name)] == []
    page = (ROOT / "docs/reference/python.md").read_text()
    assert [n for n in names if not n.startswith("__") and f"\n## {n}\n" not in page] == []


def test_package_lists_its_public_names_and_nothing_else() -> None:
    assert sorted(dir(tradewind)) == sorted(tradewind.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tradewind.no_such_name


@pytest.mark.slow
def test_public_names_mean_the_same_whatever_is_imported() -> None:
    """A room with the name of a public function would take its place as soon as somebody imports the room."""
    code = (
        "import importlib, pkgutil, tradewind\n"
        "for module in pkgutil.iter_modules(tradewind.__path__, 'tradewind.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print(*[n for n in tradewind.__all__ if type(getattr(tradewind, n)).__name__ == 'module'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [], done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=_path)
def test_source_file(path: Path) -> None:
    """A docstring, a readable length, and nothing left over."""
    text = path.read_text()
    tree = ast.parse(text, feature_version=(3, 11))
    place = _path(path)
    assert ast.get_docstring(tree), f"{place} has no docstring"
    lines = text.count("\n")
    assert lines <= LONG_FILES.get(place, FILE_LINES), f"{place} has {lines} lines"
    for function in _functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        limit = LONG_FUNCTIONS.get(f"{place}:{function.name}", FUNCTION_LINES)
        assert length <= limit, f"{place}:{function.lineno} {function.name} has {length} lines"
    left_over = re.search(r"\b(TODO|FIXME|XXX|HACK)\b|except Exception:\s*pass", text)
    assert left_over is None, f"{place}: {left_over}"
    assert _riddles(tree) == [], f"{place}: a docstring begins with a verb or a noun that a stranger understands"


def _riddles(tree: ast.Module) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [(node, ast.get_docstring(node) or "") for node in ast.walk(tree) if isinstance(node, documented)]
    return [f"{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}" for node, text in found if RIDDLE.match(text)]


def test_no_folder_is_a_heap() -> None:
    """More modules than a listing explains are grouped by subject."""
    sizes = Counter(path.parent for path in SOURCES if path.stem != "__init__")
    assert {_path(folder): size for folder, size in sizes.items() if size > FOLDER_MODULES} == {}


def test_modules_are_named_by_the_words_of_the_field() -> None:
    names = {path: path.parent.name if path.stem == "__init__" else path.stem for path in SOURCES}
    assert [_path(path) for path, name in names.items() if DIALECT.fullmatch(name)] == []


def test_a_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in _top(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(_path(path))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in SAME_CONCEPT} == {}
    assert set(SAME_CONCEPT) <= set(twice), "a name that is used once needs no reason any more"


def test_modules_import_each_other_in_one_direction() -> None:
    """A circle of imports hides which module is the lower one; imports in functions and for types do not count."""
    known = {_module(path): path for path in SOURCES}
    waiting = TopologicalSorter({name: _imported(path, name, known.keys()) for name, path in known.items()})
    try:
        waiting.prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@cache
def _top(path: Path) -> list[ast.stmt]:
    """What stands at the top of a module and matters here, without what is in its classes."""
    body = ast.parse(path.read_text()).body
    found: list[ast.stmt] = [node for node in body if isinstance(node, ast.ClassDef | _Import)]
    for node in found:
        if isinstance(node, ast.ClassDef):
            node.body = []
    return found


_Import = ast.Import | ast.ImportFrom


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, module: str, known: Collection[str]) -> set[str]:
    """Modules of the package that a module imports when it is imported itself."""
    found: set[str] = set()
    for node in _top(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return {name for name in found if name in known and name != module}


def test_paths_of_users_are_expanded_in_one_place() -> None:
    """``Path.expanduser`` raises a RuntimeError for ``~nobody``, which would end in a traceback."""
    bare = [_path(p) for p in SOURCES if p.stem != "paths" and re.search(r"\bexpanduser\b", p.read_text())]
    assert bare == [], "write tradewind.utils.paths.expand"


def test_extras_are_installed_in_one_way() -> None:
    """In quotes, or zsh takes the brackets for a pattern; hints have it of `tradewind.utils.dependencies`."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.yaml"), *SOURCES]
    found = [words for page in pages for words in re.findall(r"pip install \S*tradewind\[\S*", page.read_text())]
    assert len(found) > 20
    assert [words for words in found if not re.match(r"pip install 'tradewind\[\w+\]'", words)] == []
    by_hand = [_path(p) for p in SOURCES if re.search(r"(?<!`)pip install \S?tradewind\[", p.read_text())]
    assert by_hand == [], "only docstrings have it in backquotes; elsewhere write how_to_install"


def test_allow_lists_name_only_what_needs_it() -> None:
    for place in LONG_FILES:
        assert (ROOT / place).read_text().count("\n") > FILE_LINES, f"{place} needs no exception any more"
    for place in LONG_FUNCTIONS:
        path, _, name = place.partition(":")
        lengths = [
            (f.end_lineno or f.lineno) - f.lineno + 1
            for f in _functions(ast.parse((ROOT / path).read_text()))
            if f.name == name
        ]
        assert max(lengths) > FUNCTION_LINES, f"{place} needs no exception any more"


def test_every_test_checks_something() -> None:
    """A test that asserts nothing and expects nothing cannot fail."""
    empty = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for function in _functions(ast.parse(path.read_text())):
            if function.name.startswith("test_") and not _checks(function):
                empty.append(f"{_path(path)}:{function.lineno} {function.name}")
    assert empty == []


_CHECKING = re.compile(r"raises|warns|assert|check|expect|verify|fail|refus|must", re.IGNORECASE)


def _checks(function: ast.AST) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        # The name of what is called, with the names before it.
        if isinstance(node, ast.Call):
            called = (each for each in ast.walk(node.func) if isinstance(each, ast.Name | ast.Attribute))
            if any(_CHECKING.search(each.id if isinstance(each, ast.Name) else each.attr) for each in called):
                return True
    return False


def test_announced_parts_load() -> None:
    ours = [row for row in plugins.broken() if plugins.origin(row.kind, row.name)[0] in ("tradewind", "")]
    assert ours == []


def test_entry_points_are_sorted_and_of_known_kinds(project: dict[str, Any]) -> None:
    groups = project["project"]["entry-points"]
    assert set(groups) == {group(kind) for kind in KINDS}
    for kind in KINDS:
        points = groups[group(kind)]
        assert list(points) == sorted(points), kind
        for name, value in points.items():
            assert re.fullmatch(r"[a-z][a-z0-9_]*", name), f"{kind}: {name}"
            assert value.rpartition(":")[2].endswith(kind.capitalize()), f"{kind}: {value} does not end with its role"


def test_what_is_installed_is_what_the_project_announces(project: dict[str, Any]) -> None:
    """An entry point that was added and not installed would be tested by nobody: run pip install again."""
    groups = project["project"]["entry-points"]
    for kind in KINDS:
        ours = [name for name in plugins.names(kind) if plugins.origin(kind, name)[0] == "tradewind"]
        assert ours == sorted(groups[group(kind)])


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_says_what_it_is_and_every_setting_what_it_does(kind: str) -> None:
    for name, part in plugins.load_all(kind).items():
        assert len(part.summary()) > 10, f"{kind} {name} has no docstring"
        assert part.summary().endswith((".", "``.", ":")) or len(part.summary()) < 120, f"{kind} {name}"
        for setting, field in part.Settings.model_fields.items():
            assert field.description, f"{kind} {name}: the setting {setting} has no description"


def test_version_is_in_one_piece(project: dict[str, Any]) -> None:
    assert project["project"]["version"] == tradewind.__version__
    assert f"## [{tradewind.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
