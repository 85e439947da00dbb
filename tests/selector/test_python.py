"""The selector that asks the user's own function: what it gets, what it may answer, and what is said when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.engine.search_builder import build_problem
from tradewind.errors import NoOfferError, SpecError
from tradewind.problem import Categorical, Configuration, Instance, Integer, Nodes, Offer, Space
from tradewind.problem.job_spec.spec import load_spec
from tradewind.selector.base import Selector

FILE = """\
from dataclasses import replace
from pathlib import Path

from tradewind.errors import NoOfferError


def by_size(values, offers):
    with (Path(__file__).parent / "calls").open("a") as calls:
        print(dict(values), file=calls)
    wanted = {"small": 2, "large": 8}.get(values["size"])
    return next((offer for offer in offers if offer.vcpu == wanted), None)


def the_instance(values, offers):
    return values["instance"]


def three(values, offers):
    return offers[0].times(3)


def refuses(values, offers):
    raise NoOfferError("not on Sundays")


def divides(values, offers):
    return 1 / 0


def invents(values, offers):
    return replace(offers[0], price_per_hour=0.001)


def names_it(values, offers):
    return offers[0].instance_type
"""

OFFERS = [
    Offer("shop", "g8", vcpu=8, memory_gib=32, price_per_hour=0.40),
    Offer("shop", "g2", vcpu=2, memory_gib=8, price_per_hour=0.10),
    Offer("shop", "c8", vcpu=8, memory_gib=16, price_per_hour=0.30),
]
SIZE = Categorical(name="size", values=("small", "large", "huge"))
WORKERS = Integer(name="workers", low=1, high=2)


def make(folder: Path, function: str, *parameters: Any, **settings: Any) -> Selector:
    (folder / "choose.py").write_text(FILE)
    given = {"function": f"{folder}/choose.py:{function}", **settings}
    selector: Selector = plugins.create("selector", "python", given, offers=OFFERS, space=Space(parameters))
    return selector


def test_the_function_chooses_and_is_asked_once_for_each_choice_of_machines(tmp_path: Path) -> None:
    selector = make(tmp_path, "by_size", SIZE, WORKERS, Nodes(name="nodes", values=(1, 4)), parameters=["size"])
    assert selector.machine_parameters == ("size", "nodes")
    values: dict[str, str | int] = {"size": "large", "nodes": 4}
    for workers in (1, 2):
        assert selector.resolve(Configuration({**values, "workers": workers})) == OFFERS[2].times(4)
    assert (tmp_path / "calls").read_text().splitlines() == [str(values)]


def test_what_the_function_does_not_know_is_no_offer(tmp_path: Path) -> None:
    with pytest.raises(NoOfferError, match=r"no provider sells size=huge \(.*choose.py:by_size decides\)"):
        make(tmp_path, "by_size", SIZE, parameters=["size"]).resolve(Configuration({"size": "huge"}))
    with pytest.raises(NoOfferError, match="not on Sundays"):
        make(tmp_path, "refuses", WORKERS).resolve(Configuration({"workers": 1}))


def test_an_instance_comes_as_its_offer_and_nodes_may_be_the_functions(tmp_path: Path) -> None:
    instance = Instance(name="instance", values=("a", "b"), offers={"a": OFFERS[0], "b": OFFERS[1]})
    assert make(tmp_path, "the_instance", instance).resolve(Configuration({"instance": "b"})) == OFFERS[1]
    assert make(tmp_path, "three", WORKERS).resolve(Configuration({"workers": 1})) == OFFERS[1].times(3)
    both = make(tmp_path, "three", Nodes(name="nodes", values=(2,)))
    with pytest.raises(SpecError, match="more than one of them chooses the number of machines"):
        both.resolve(Configuration({"nodes": 2}))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("divides", r"choose\.py:27: ZeroDivisionError: division by zero"),
        ("invents", r"it returned Offer\(.*return one of the offers that it was given"),
        ("names_it", r"it returned 'g2'"),
        ("nobody", r"there is no function nobody"),
    ],
)
def test_a_function_that_fails_is_said_with_its_line(tmp_path: Path, function: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        make(tmp_path, function, WORKERS).resolve(Configuration({"workers": 1}))


def test_a_parameter_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"there is no parameter 'siez' \(there is size, workers\)"):
        make(tmp_path, "by_size", SIZE, WORKERS, parameters=["siez"])


def test_the_file_is_found_from_the_folder_of_the_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "choose.py").write_text(FILE)
    (tmp_path / "own.csv").write_text(
        "API Name,Provider,CPU,Memory,Category,Price\ng2,shop,2,8,general,0.1\ng8,shop,8,32,general,0.4\n"
    )
    (tmp_path / "job.yaml").write_text(
        "name: own\njob: {command: work}\nspace: {size: [small, large]}\n"
        "offers: {provider: csv}\ncatalogues: {csv: {path: own.csv}}\n"
        "select: {use: python, function: 'choose.py:by_size', parameters: [size]}\n"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    problem = build_problem(load_spec(tmp_path / "job.yaml"), tmp_path)
    assert problem.resolver.resolve(Configuration({"size": "large"})).instance_type == "g8"
