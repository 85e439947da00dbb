"""The applications that come with the product: installed, and what their programs compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.service.live_server import principal
from tests.service.web.page_client import Visitor, words
from tests.service.web.sample_server import people

from tradewind.errors import ForbiddenError
from tradewind.service.applications import ready
from tradewind.service.applications.ready.programs import heat, primes
from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings

KERNELS = Path(str(ready.__file__)).parent / "programs/kernels.py"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Context:
    folder = tmp_path_factory.mktemp("ready")
    context = open_context(ServiceSettings(), f"sqlite:///{folder}/service.db", folder / "home")
    people(context)
    return context


@pytest.mark.slow
def test_starters_are_installed_with_one_press_and_run_with_one_click(shared: Context) -> None:
    ann, root = Visitor(shared, "ann"), Visitor(shared, "root")
    assert "An administrator can install them" in words(ann.get("/").text)
    assert ann.post("/install/starters").status_code == 403
    assert root.post("/install/starters").headers["location"] == "/"
    assert root.post("/install/starters").status_code == 303, "once more changes nothing"
    page = words(ann.get("/").text)
    assert [page.count(title) > 0 for title in ("Stars in a galaxy", "Heat on a plate")] == [True, True]
    assert "at most $0.0500" in page
    place = ann.post("/start/starter-galaxy").headers["location"]
    row = shared.requests.get(principal(shared, "ann"), int(place.rpartition("/")[2]))
    assert (row.application, row.name, row.kind) == ("starter-galaxy@1", "Stars in a galaxy", "run")
    search = ann.post("/start/starter-primes").headers["location"]
    assert shared.requests.get(principal(shared, "ann"), int(search.rpartition("/")[2])).kind == "search"
    assert ann.post("/start/none").status_code == 404


@pytest.mark.slow
def test_users_see_three_entries_and_administrators_the_rest(shared: Context) -> None:
    menus = [Visitor(shared, name).get("/").text.partition("</nav>")[0] for name in ("ann", "root")]
    assert [menu.count("<li><a href") for menu in menus] == [4, 9], "three or eight, and the account"
    assert "Searches" in menus[0]
    assert "Offers" not in menus[0]
    assert Visitor(shared, "ann").get("/workflows").status_code == 200


@pytest.mark.slow
def test_only_an_administrator_installs_the_benchmarks(shared: Context) -> None:
    with pytest.raises(ForbiddenError):
        ready.install(shared.applications, ready.BENCHMARKS, principal(shared, "ann"))
    assert "How many nodes are worth it?" in Visitor(shared, "root").get("/").text
    assert len(ready.install(shared.applications, ready.BENCHMARKS)) == 3
    assert "How many nodes are worth it?" not in Visitor(shared, "root").get("/").text


def test_primes_are_counted() -> None:
    assert primes.count((0, 100)) == 25
    assert sum(primes.count((first, first + 25)) for first in range(0, 1000, 25)) == 168


def test_heat_flows_to_all_sides_alike() -> None:
    plate = [[0.0] * 5 for _ in range(5)]
    plate[2][2] = 100.0
    after = heat.step_of(plate)
    assert after[2] == pytest.approx([0.0, 20.0, 20.0, 20.0, 0.0])
    assert heat.picture(after).count("<rect") == 25


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["IS", "CG", "network"])
def test_a_kernel_checks_itself_with_several_processes(kernel: str, tmp_path: Path) -> None:
    environment = {"TRADEWIND_OUTPUTS": str(tmp_path), "TRADEWIND_METRICS": str(tmp_path / "metrics.jsonl")}
    ran = subprocess.run(
        [sys.executable, str(KERNELS), kernel, "small", "2"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads((tmp_path / "result.json").read_text())["processes"] == 2
