from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import NoOfferError, SpecError
from tradewind.problem import Billing, Budget, Constraints, Instance, Objective, Offer, OfferQuery, Threshold
from tradewind.problem.job_spec.choices import HookSpec, PluginChoice, StopSpec
from tradewind.problem.job_spec.spec import JobSpec, load_spec, parse_spec

Make = Callable[..., JobSpec]

FULL = """
name: full
job:
  command: prog -{{ level }} --n={{ nodes }} "{{ instance.vcpu }} x" {{ rows }}
  workdir: work
  env: {THREADS: 4, FAST: true, LEVEL: "{{ level }}"}
  secrets: {TOKEN: env:MY_TOKEN, KEY: file:key.txt}
  inputs: [data.csv]
  outputs: ["*.out"]
  image: python:3.12
  parameters: {rows: 1000, kind: small}
  fraction: 0.5
space:
  instance: {vcpu: 1..4, memory: 2GiB.., price: ..$1, gpus: 0, arch: arm64, spot: any, limit: 5}
  nodes: 1..4
  level: {type: integer, low: 1, high: 9, step: 2, log: false}
  rate: 0.001..1 log
  codec: [gzip, bz2, none]
  window: {values: [15, 20], when: {codec: [gzip, bz2]}}
  fast: {type: categorical, values: [true, false], when: codec == 'gzip' and level > 3}
  memory: {type: ordinal, values: [1, 2], attribute: memory}
where:
  - level <= instance.vcpu * 3
  - nodes <= 2 or codec != 'none'
offers: {provider: [aws, gcp], region: eu-west-1, family: c7i, category: compute}
objective: {maximise: throughput, also: [cost, {minimise: error}]}
constraints: {deadline: 30m, metrics: {ratio: ">= 2.5", error: {at_most: 0.1}, exact: "== 1"}}
budget: {dollars: $2, hours: 30m, trials: 40}
deploy:
  runner: {use: process}
  provisioner: none
  billing: {setup: 90s, minimum: 1m, granularity: 60}
  retries: 0
  log_limit: 64MiB
  hooks:
    before_executing: ./prepare.sh --fast
    after_collecting: [./a.sh, {command: [b, c d], timeout: 5s}]
    on_error: {python: "module.sub:function"}
select: nearest
interpret: exit_code
searcher: random
parallel: 3
seed: -7
stop: [no_improvement, {use: target, value: 3}]
abort: false
future_runs: 100
"""


def test_everything_that_can_be_written(spec_of: Make, tmp_path: Path) -> None:
    spec = spec_of(FULL)
    assert spec.name == spec.job.name == "full"
    assert spec.job.command == ("prog", "-{{ level }}", "--n={{ nodes }}", "{{ instance.vcpu }} x", "{{ rows }}")
    assert spec.job.workdir == tmp_path / "work"
    assert spec.job.env == {"THREADS": "4", "FAST": "true", "LEVEL": "{{ level }}"}
    assert spec.job.secrets == {"TOKEN": "env:MY_TOKEN", "KEY": f"file:{tmp_path / 'key.txt'}"}
    assert (spec.job.inputs, spec.job.outputs, spec.job.image) == (("data.csv",), ("*.out",), "python:3.12")
    assert dict(spec.job.parameters.values) == {"rows": 1000.0, "kind": "small"}
    assert spec.job.parameters.fidelity == 0.5
    assert [(p.name, p.kind) for p in spec.parameters] == [
        ("instance", "instance"),
        ("nodes", "nodes"),
        ("level", "integer"),
        ("rate", "float"),
        ("codec", "categorical"),
        ("window", "ordinal"),
        ("fast", "categorical"),
        ("memory", "ordinal"),
    ]
    assert spec.objective == Objective("throughput", "maximise", (Objective(), Objective("error")))
    assert spec.constraints == Constraints(
        1800.0, (Threshold("error", None, 0.1), Threshold("exact", 1.0, 1.0), Threshold("ratio", 2.5))
    )
    assert spec.budget == Budget(2.0, 0.5, 40)
    assert spec.billing == Billing(90.0, 60.0, 60.0)
    assert (spec.runner, spec.provisioner) == (PluginChoice("process"), PluginChoice("none"))
    assert (spec.selector, spec.searcher) == (PluginChoice("nearest"), PluginChoice("random"))
    assert spec.interpret == (PluginChoice("exit_code"),)
    assert spec.stop == (StopSpec("no_improvement"), StopSpec("target", {"value": 3}))
    assert spec.hooks == {
        "before_executing": (HookSpec(("./prepare.sh", "--fast")),),
        "after_collecting": (HookSpec(("./a.sh",)), HookSpec(("b", "c d"), timeout=5.0)),
        "on_error": (HookSpec(python="module.sub:function"),),
    }
    assert (spec.retries, spec.log_limit, spec.parallel, spec.seed) == (0, 64 * 2**20, 3, -7)
    assert (spec.abort, spec.future_runs, spec.base, spec.file) == (False, 100.0, tmp_path, "job.yaml")
    assert spec.parameters[5].when is not None
    assert spec.parameters[5].when.text == "codec in ('gzip', 'bz2',)"


def test_a_query_takes_what_it_does_not_say_from_the_offers(spec_of: Make) -> None:
    assert spec_of(FULL).instance_queries() == {
        "instance": OfferQuery(
            provider=("aws", "gcp"),
            region=("eu-west-1",),
            category=("compute",),
            family=("c7i",),
            arch=("arm64",),
            vcpu=(1, 4),
            memory=(2, None),
            price=(None, 1),
            gpus=(0, 0),
            spot=None,
            limit=5,
        )
    }
    spec = spec_of(space={"instance": ["m5.large", "c5.*"]}, offers={"spot": True, "types": "x"})
    assert spec.instance_queries() == {"instance": OfferQuery(types=("m5.large", "c5.*"), spot=True)}
    assert spec.offers == OfferQuery(types=("x",), spot=True)
    one = spec_of(space={"machine": {"type": "instance", "values": "m5.large"}})
    assert one.instance_queries() == {"machine": OfferQuery(types=("m5.large",))}


def test_defaults(spec_of: Make, tmp_path: Path) -> None:
    spec = spec_of()
    assert spec.job.workdir == tmp_path
    assert spec.objective == Objective()
    assert (spec.constraints, spec.budget, spec.billing, spec.offers) == (
        Constraints(),
        Budget(),
        Billing(),
        OfferQuery(),
    )
    assert (spec.runner.name, spec.provisioner.name, spec.selector.name, spec.searcher.name) == (
        *("process", "none", "exact", "tradewind"),
    )
    assert spec.interpret == (PluginChoice("exit_code"), PluginChoice("json_lines", {"optional": True}))
    assert (spec.retries, spec.parallel, spec.seed, spec.abort, spec.future_runs) == (2, 1, 0, True, 100.0)
    assert spec.log_limit == 256 * 2**20


@pytest.mark.parametrize(
    ("written", "described"),
    [
        ([1, 3, 6], "ordinal: 1, 3, 6"),
        ([1, 2.5], "ordinal: 1.0, 2.5"),
        (["a", "b"], "categorical: a, b"),
        ([True, False], "categorical: True, False"),
        (["a", 1], "categorical: a, 1"),
        (6, "ordinal: 6"),
        (True, "categorical: True"),
        ("1..9", "integer: 1 to 9"),
        ("-5 .. 5", "integer: -5 to 5"),
        ("1..64 log", "integer: 1 to 64 (log)"),
        ("0..100 step 25", "integer: 0 to 100 in steps of 25"),
        ("0..1 step 0.05", "float: 0 to 1 in steps of 0.05"),
        ("0.5..9 step 2", "float: 0.5 to 8.5 in steps of 2"),
        ("1..9 step 0.5 log", "float: 1 to 9 in steps of 0.5 (log)"),
        ({"type": "float", "low": 0, "high": 1, "step": 0.05}, "float: 0 to 1 in steps of 0.05"),
        ({"low": 0, "high": 2, "step": 0.5}, "float: 0 to 2 in steps of 0.5"),
        ("0.1..0.9", "float: 0.1 to 0.9"),
        ("1..1,000", "integer: 1 to 1000"),
        ("1..1_000", "integer: 1 to 1000"),
        ({"type": "integer", "low": 1, "high": 1e3}, "integer: 1 to 1000"),
        ("1e-4..1 log", "float: 0.0001 to 1 (log)"),
        ({"low": 1, "high": 4}, "integer: 1 to 4"),
        ({"low": 1, "high": 4.5}, "float: 1 to 4.5"),
        ({"values": ["x"]}, "categorical: x"),
        ({"type": "ordinal", "values": ["s", "m", "l"]}, "ordinal: s, m, l"),
        ({"type": "nodes", "low": 2, "high": 4}, "nodes: 2, 3, 4"),
        ({"type": "nodes", "high": 2}, "nodes: 1, 2"),
        ({"type": "nodes", "values": "1..7 step 3"}, "nodes: 1, 4, 7"),
    ],
)
def test_forms_of_parameters(written: Any, described: str, spec_of: Make) -> None:
    (declared,) = spec_of(space={"p": written}).parameters
    assert declared.parameter is not None
    assert f"{declared.kind}: {declared.parameter.describe()}" == described


@pytest.mark.parametrize(
    ("written", "values"), [(4, (4,)), ([1, 2], (1, 2)), ("1..3", (1, 2, 3)), ({"high": 2}, (1, 2))]
)
def test_nodes_need_no_type(written: Any, values: tuple[int, ...], spec_of: Make) -> None:
    declared = spec_of(space={"nodes": written}).parameters[0]
    assert declared.kind == "nodes"
    assert declared.parameter is not None
    assert declared.parameter.values == values  # type: ignore[attr-defined]


def test_anchors_may_stand_at_the_top(tmp_path: Path) -> None:
    text = """
x-range: &range {type: integer, low: 1, high: 3}
name: anchors
job: {command: [run, "{{ a }}"]}
space: {a: *range, b: {<<: *range, high: 1e3}}
budget: {trials: 1,000}
"""
    with pytest.raises(SpecError, match=r":6: unknown key '000' in budget \(a comma ends a value"):
        parse_spec(text, base=tmp_path)
    spec = parse_spec(text.replace("{trials: 1,000}", "\n  trials: 1,000"), base=tmp_path)
    assert [p.parameter.describe() for p in spec.parameters if p.parameter] == ["1 to 3", "1 to 1000"]
    assert spec.budget.trials == 1000


@pytest.mark.parametrize(
    ("written", "budget"),
    [
        ("$2", Budget(2.0)),
        (3, Budget(3.0)),
        ({"hours": 2}, Budget(hours=2.0)),
        ({"hours": "1.5"}, Budget(hours=1.5)),
        ("$1,000", Budget(1000.0)),
        ("USD 1_000.5", Budget(1000.5)),
        ("US$2", Budget(2.0)),
        ({"trials": "1_000", "dollars": "1_0"}, Budget(10.0, trials=1000)),
        ("1,234,567.50 USD", Budget(1234567.5)),
        ({"trials": 1e3}, Budget(trials=1000)),
        ({"trials": "1,000", "hours": "1,000"}, Budget(hours=1000.0, trials=1000)),
        (None, Budget()),
    ],
)
def test_budgets(written: Any, budget: Budget, spec_of: Make) -> None:
    assert spec_of(budget=written).budget == budget


def test_it_is_read_back_from_the_store_in_another_folder(spec_of: Make, tmp_path: Path) -> None:
    spec = spec_of(FULL)
    document = json.loads(json.dumps(spec.document(), sort_keys=True))
    again = JobSpec.from_json(document)
    assert again == spec
    assert again.document() == spec.document()
    assert again.problem_key == spec.problem_key
    elsewhere = JobSpec.from_json(document, tmp_path / "elsewhere")
    assert elsewhere.base == tmp_path / "elsewhere"
    assert elsewhere.job.workdir == tmp_path / "work"
    with pytest.raises(SpecError, match="is not a stored specification"):
        JobSpec.from_json({"base": "/"})


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("no_improvement", [StopSpec("no_improvement")]),
        ({"failed": 5}, [StopSpec("failed", {"trials": 5})]),
        ({"failed": 5, "target": 0.9}, [StopSpec("failed", {"trials": 5}), StopSpec("target", {"value": 0.9})]),
        ([{"no_improvement": {"trials": 9, "by": 0.1}}], [StopSpec("no_improvement", {"trials": 9, "by": 0.1})]),
        (
            [{"all_failed": None}, {"use": "failed", "trials": 2}],
            [StopSpec("all_failed"), StopSpec("failed", {"trials": 2})],
        ),
        ({"faild": 5}, [StopSpec("faild")]),
    ],
)
def test_stopping_rules_are_written_by_name_with_a_value_or_with_settings(
    written: Any, read: list[StopSpec], spec_of: Make
) -> None:
    spec = spec_of(stop=written)
    assert spec.stop == tuple(read)
    assert JobSpec.from_json(spec.document()).stop == spec.stop


def test_a_stored_specification_is_read_without_its_plugins(spec_of: Make) -> None:
    document = spec_of().document()
    document["job"]["searcher"] = {"use": "uninstalled", "speed": 3}
    assert JobSpec.from_json(document).searcher == PluginChoice("uninstalled", {"speed": 3})


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": {"dollars": 5}},
        {"parallel": 4},
        {"seed": 9},
        {"searcher": "random"},
        {"stop": ["no_improvement"]},
        {"abort": False},
        {"deploy": {"retries": 5, "log_limit": "1MiB"}},
        {"job": {"command": ["true"], "workdir": "elsewhere", "secrets": {"T": "env:T"}}},
        {"space": {"level": {"type": "ordinal", "values": [1, 2, 3]}}},
    ],
)
def test_results_stay_comparable(changes: dict[str, Any], spec_of: Make) -> None:
    assert spec_of(**changes).problem_key == spec_of().problem_key


@pytest.mark.parametrize(
    "changes",
    [
        {"job": {"command": ["false"]}},
        {"space": {"level": [1, 2, 4]}},
        {"where": "level < 3"},
        {"objective": "runtime"},
        {"constraints": {"deadline": 10}},
        {"deploy": {"billing": {"granularity": 60}}},
        {"deploy": {"runner": {"use": "replay", "file": "runs.csv"}}},
        {"offers": {"provider": "aws"}},
        {"select": "nearest"},
        {"interpret": "exit_code"},
    ],
)
def test_results_stop_being_comparable(changes: dict[str, Any], spec_of: Make) -> None:
    assert spec_of(**changes).problem_key != spec_of().problem_key


def test_the_problem_key_never_changes_between_versions(spec_of: Make) -> None:
    # Stores hold it: a change here makes every open study start again.
    assert spec_of().problem_key == "280ec3b39d8ae257"


def test_the_space_is_built_from_what_the_catalogue_found(spec_of: Make, machines: dict[str, Offer]) -> None:
    spec = spec_of(space={"instance": {"vcpu": "1.."}, "level": "1..9"}, where=["level <= instance.vcpu * 3"])
    space = spec.build_space({"instance": list(machines.values())})
    assert len(space) == 3 + 9
    instance = space["instance"]
    assert isinstance(instance, Instance)
    assert instance.values == ("small", "large")
    unanswered: list[dict[str, list[Offer]]] = [{}, {"instance": []}]
    for nothing in unanswered:
        with pytest.raises(NoOfferError, match=r"instance: no offer matches vcpu=1..") as caught:
            spec.build_space(nothing)
        assert caught.value.hint


def test_constraints_that_allow_nothing_are_found_when_the_space_is_built(spec_of: Make) -> None:
    spec = spec_of("name: x\njob: {command: 'true'}\nspace: {level: [1, 2]}\nwhere:\n  - level > 2\n")
    with pytest.raises(SpecError, match=r"job.yaml:4: no combination of values keeps all constraints"):
        spec.build_space({})


def test_files_and_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "job.yaml"
    path.write_text("name: x\njob: {command: 'true', workdir: ..}\nspace: {level: [1, 2]}\nbudget: {dollars: 1}\n")
    monkeypatch.chdir(tmp_path)
    spec = load_spec(Path("folder/job.yaml"), {"budget.dollars": "$3", "seed": 4, "deploy": {"retries": 1}})
    assert spec.base == tmp_path / "folder"
    assert spec.job.workdir == tmp_path
    assert (spec.budget.dollars, spec.seed, spec.retries) == (3.0, 4, 1)
    with pytest.raises(SpecError, match=r"the command line: budget.dollars: '-1' is not an amount of money"):
        load_spec(path, {"budget.dollars": "-1"})
    with pytest.raises(SpecError, match=r"the command line: unknown key 'dollar' in budget .did you mean 'dollars'"):
        load_spec(path, {"budget.dollar": 1})


def test_a_whole_job_parameter_stays_whole_and_is_the_same_job_with_a_point(spec_of: Make) -> None:
    def spec(**values: Any) -> JobSpec:
        return spec_of(job={"command": ["work"], "parameters": values})

    found = spec(size=2000, share=2.5, other=2000.0, huge=1e300, kind="x")
    assert repr(dict(found.job.parameters.values)) == (
        "{'size': 2000, 'share': 2.5, 'other': 2000, 'huge': 1e+300, 'kind': 'x'}"
    )
    assert repr(found.document()["job"]["job"]["parameters"]["size"]) == "2000"
    assert spec(size=2000).problem_key == spec(size=2000.0).problem_key == "efd47a40b02358ad"


@pytest.mark.parametrize("searcher", ["cherrypick", "obol", "ernest", "paris", "done", "trimtuner"])
def test_a_searcher_that_is_published_without_aborts_lets_runs_end(searcher: str) -> None:
    text = f"name: a\njob: {{command: a}}\nspace: {{x: 1..3}}\nsearcher: {searcher}\n"
    assert not parse_spec(text, base=Path("/")).abort
    assert parse_spec(text + "abort: true\n", base=Path("/")).abort


def test_the_job_goes_before_its_searcher_and_the_searchers_setting_counts() -> None:
    text = "name: a\njob: {command: a}\nspace: {x: 1..3}\n"
    assert parse_spec(text, base=Path("/")).abort
    assert not parse_spec(text + "abort: false\n", base=Path("/")).abort
    assert parse_spec(text + "searcher: {use: obol, abort: true}\n", base=Path("/")).abort, "Lynceus"
    assert not parse_spec(text + "searcher: {use: obol, abort: false}\n", base=Path("/")).abort
    assert not parse_spec(text + "searcher: {use: obol, abort: true}\nabort: false\n", base=Path("/")).abort


def test_a_stored_job_has_what_was_decided() -> None:
    spec = parse_spec("name: a\njob: {command: a}\nspace: {x: 1..3}\nsearcher: obol\n", base=Path("/"))
    assert spec.document()["job"]["abort"] is False
    again = JobSpec.from_json(spec.document())
    assert (again.said_abort, again.abort, again.problem_key) == (False, False, spec.problem_key)
