"""An application, the values of its form and a backend make a specification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.engine.search_builder import build_problem
from tradewind.errors import FormError, InputError, NoOfferError
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context

TEXT = """\
name: heat
job:
  command: [heat, "--size={{ size }}", "{{ mesh }}", "--fast={{ fast }}", "{% if fast %}--quick{% endif %}"]
  parameters: {unit: 10}
space:
  instance: {vcpu: 2..64, memory: 4GiB..}
  nodes: [1, 2, 4]
constraints: {deadline: 1h}
deploy: {retries: 1, longest: 2h}
application:
  fields:
    size: {type: integer, default: 64}
    title: {type: text, default: "", data: [files.input.json]}
    fast: {type: boolean, default: false}
    mesh: {type: file, required: false, suffix: .msh}
  files:
    plain.txt: "{{ size }} stays"
    input.json: {template: true, text: '{"size": {{ size }}, "title": {{ title | tojson }}, "bytes": {{ mesh_bytes }}}'}
    run.sh: "#!/bin/sh"
"""
BACKEND = """\
deploy:
  runner: {use: docker, network: none}
  billing: {granularity: 1s}
  longest: 1h
offers: {provider: csv, vcpu: ..8}
catalogues: {csv: {path: prices.csv}}
"""
PRICES = "API Name,Provider,CPU,Memory,Category,Price\n" + "".join(
    f"n{vcpu},lab,{vcpu},{4 * vcpu},general,{0.05 * vcpu}\n" for vcpu in (1, 2, 4, 8, 16)
)


@pytest.fixture
def cloud(context: Context, root: Principal) -> Context:
    """A server with the backend ``cloud``, which sells up to 8 vCPUs."""
    context.data_folder.mkdir(parents=True, exist_ok=True)
    (context.data_folder / "prices.csv").write_text(PRICES)
    context.backends.set(root, "cloud", BACKEND.replace("prices.csv", str(context.data_folder / "prices.csv")))
    return context


def made(context: Context, who: Principal, text: str = TEXT, given: Any = None, **more: Any) -> JobSpec:
    """The specification of a request on ``cloud``."""
    row = context.applications.register(who, text, vouch=who.is_admin)
    backend = context.backends.choose(who, row, "cloud")
    return context.applications.spec(row, given or {}, backend, **more)


def sold(context: Context, spec: JobSpec) -> list[tuple[str, int]]:
    """The machines of all configurations."""
    candidates = build_problem(spec, context.data_folder).candidates
    offers = [candidates.offer(i) for i in range(len(candidates))]
    return sorted({(offer.instance_type, offer.nodes) for offer in offers})


@pytest.mark.slow
def test_values_become_job_parameters(cloud: Context, root: Principal) -> None:
    spec = made(cloud, root, given={"size": "128", "fast": "on"})
    values = dict(spec.job.parameters.values)
    assert values == {"unit": 10, "size": 128, "title": "", "fast": 1, "mesh": "", "mesh_bytes": 0}


def test_where_and_how_is_the_backends_to_say(cloud: Context, root: Principal) -> None:
    spec = made(cloud, root)
    assert (spec.runner.name, spec.runner.settings) == ("docker", {"network": "none"})
    assert (spec.billing.granularity_seconds, spec.retries, spec.longest) == (1.0, 1, 3600.0)
    assert sold(cloud, spec) == [(f"n{v}", n) for v in (2, 4, 8) for n in (1, 2, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "machines"),
    [
        ("instance: {}", ["n1", "n2", "n4", "n8"]),
        ("instance: {provider: aws}", ["n1", "n2", "n4", "n8"]),
        ("instance: {vcpu: 4}", ["n4"]),
        ("instance: [n2, n4]", ["n2", "n4"]),
        ("instance: {memory: ..8GiB}", ["n1", "n2"]),
        ("instance: {types: 'n*', price: ..$0.1}", ["n1", "n2"]),
    ],
)
def test_the_backends_offers_narrow_what_is_asked_for(
    cloud: Context, root: Principal, space: str, machines: list[str]
) -> None:
    text = TEXT.replace("instance: {vcpu: 2..64, memory: 4GiB..}\n  nodes: [1, 2, 4]", space)
    assert [name for name, _ in sold(cloud, made(cloud, root, text))] == machines


def test_a_machine_that_the_backend_does_not_have_is_named(cloud: Context, root: Principal) -> None:
    text = TEXT.replace("instance: {vcpu: 2..64, memory: 4GiB..}", "instance: [n2, n16]")
    with pytest.raises(NoOfferError, match="no offer of 'n16'"):
        sold(cloud, made(cloud, root, text))


def test_more_than_the_backend_has_is_no_offer(cloud: Context, root: Principal) -> None:
    with pytest.raises(NoOfferError, match="the backend cloud has no machine with as much vcpu"):
        made(cloud, root, TEXT.replace("vcpu: 2..64", "vcpu: 16.."))


@pytest.mark.parametrize(
    ("resources", "machines"),
    [
        ({"cpu": 4}, [("n4", n) for n in (1, 2, 4)] + [("n8", n) for n in (1, 2, 4)]),
        ({"cpu": 3, "nodes": 2, "memory": 20_000}, [("n8", 2)]),
        ({"nodes": 4, "time": 600}, [("n2", 4), ("n4", 4), ("n8", 4)]),
        ({"nodes": None, "cpu": "8"}, [("n8", n) for n in (1, 2, 4)]),
    ],
)
def test_resources_in_plain_numbers(cloud: Context, root: Principal, resources: Any, machines: Any) -> None:
    spec = made(cloud, root, resources=resources)
    assert sold(cloud, spec) == machines
    assert spec.longest == resources.get("time", 3600.0)
    assert spec.constraints.deadline == resources.get("time", 3600.0)


def test_a_deadline_of_a_request_replaces_the_applications_and_no_backends(cloud: Context, root: Principal) -> None:
    spec = made(cloud, root, TEXT.replace("deadline: 1h", "deadline: 3s"), resources={"time": 600.0})
    assert (spec.longest, spec.constraints.deadline) == (600.0, 600.0)
    spec = made(cloud, root, resources={"time": 7200.0})
    assert (spec.longest, spec.constraints.deadline) == (3600.0, 3600.0), "the backend lets no run take longer"


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"cpus": 4}, "there is no resource 'cpus'"),
        ({"cpu": 0}, "resources.cpu: 0 is no amount above 0"),
        ({"cpu": "many"}, "'many' is no amount"),
        ({"nodes": 1.5}, "1.5 is no amount"),
        ({"memory": True}, "True is no amount"),
    ],
)
def test_resources_that_are_none(cloud: Context, root: Principal, resources: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(cloud, root, resources=resources)


@pytest.mark.slow
def test_one_machine_cannot_be_two(cloud: Context, root: Principal) -> None:
    text = TEXT.replace("\n  nodes: [1, 2, 4]", "")
    assert sold(cloud, made(cloud, root, text, resources={"nodes": 1}))
    with pytest.raises(InputError, match="this application runs on one machine, not on 2"):
        made(cloud, root, text, resources={"nodes": 2})


def test_files_are_laid_out_with_values_in_them(cloud: Context, root: Principal) -> None:
    nasty = '"}, {{ 7 * 7 }} $(touch x) \\ </script>'
    given = {"size": 5, "title": nasty, "mesh": {"name": "../../etc/passwd", "text": "points"}}
    spec = made(cloud, root, given=given)
    folder = spec.job.workdir
    assert json.loads((folder / "input.json").read_text()) == {"size": 5, "title": nasty, "bytes": 6}
    assert (folder / "plain.txt").read_text() == "{{ size }} stays"
    assert (folder / "uploads/mesh.msh").read_text() == "points"
    assert spec.job.parameters.values["mesh"] == "uploads/mesh.msh"
    assert (folder / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (folder / "plain.txt").stat().st_mode & 0o777 == 0o644
    assert folder.is_relative_to(cloud.data_folder)
    assert sorted(p.name for p in folder.parent.iterdir()) == [folder.name], "nothing half made is left"


def test_equal_files_share_a_folder_and_others_do_not(cloud: Context, root: Principal, tmp_path: Path) -> None:
    first, again = made(cloud, root), made(cloud, root)
    assert first.job.workdir == again.job.workdir
    assert made(cloud, root, given={"size": 65}).job.workdir != first.job.workdir
    own = made(cloud, root, folder=tmp_path / "request")
    assert own.job.workdir == tmp_path / "request"
    assert (tmp_path / "request/input.json").exists()


@pytest.mark.slow
def test_what_the_specification_is_made_of_can_be_stored(cloud: Context, root: Principal) -> None:
    spec = made(cloud, root, given={"size": 5})
    assert JobSpec.from_json(json.loads(json.dumps(spec.document()))).job.parameters == spec.job.parameters


def test_wrong_values_make_no_specification(cloud: Context, root: Principal) -> None:
    with pytest.raises(FormError, match="size: 'x' is no number"):
        made(cloud, root, given={"size": "x"})
