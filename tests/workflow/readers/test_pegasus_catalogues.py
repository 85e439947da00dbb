"""Catalogues of Pegasus: within a workflow, beside it, and those that its properties name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.cli.app import run
from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow

WORKFLOW = """\
pegasus: 5.0.4
name: w
jobs:
- {type: job, id: A, name: prep, arguments: [f.in], uses: [{lfn: f.in, type: input}, {lfn: mid, type: output}]}
- {type: job, id: B, name: calc, namespace: n, version: '1', uses: [{lfn: mid, type: input}],
   profiles: {pegasus: {runtime: 7}}}
"""
DAX = """<adag version="3.6" name="w"><job id="A" name="prep"><argument>-i <file name="f.in"/></argument>
<uses name="f.in" link="input"/><uses name="mid" link="output"/></job>
<job id="B" name="calc" namespace="n" version="1"><profile namespace="pegasus" key="runtime">7</profile>
<uses name="mid" link="input"/></job></adag>"""
TRANSFORMATIONS = """\
pegasus: "5.0"
transformations:
- name: prep
  sites:
  - {name: far, pfn: "https://example.org/prep", type: stageable}
  - {name: pool, pfn: "file:///opt/prep", type: installed, profiles: {condor: {request_cpus: 2}}}
  profiles: {pegasus: {runtime: 30}, env: {X: y}}
- {name: calc, namespace: n, version: '1', sites: [{name: pool, pfn: /opt/calc}],
   profiles: {pegasus: {runtime: 99, memory: 512}}}
"""
REPLICAS = """\
pegasus: "5.0"
replicas:
- lfn: f.in
  pfns: [{site: web, pfn: "https://example.org/f.in"}, {site: local, pfn: /gone/f.in}, {site: local, pfn: data/raw.in}]
  metadata: {size: 4 MB}
- {lfn: mid, pfns: [{site: local, pfn: /elsewhere/mid}]}
"""
SITES = """\
pegasus: "5.0"
sites:
- {name: local, directories: [{type: sharedScratch, path: /scratch}]}
- {name: pool, profiles: {condor: {universe: vanilla, request_memory: 100}, pegasus: {style: condor}}}
"""


@pytest.fixture(params=["yml", "dax"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The workflow in both formats, with its raw file."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "raw.in").write_text("1\n")
    file = tmp_path / f"w.{request.param}"
    file.write_text(WORKFLOW if request.param == "yml" else DAX)
    return file


def beside(path: Path, folder: str = ".", **files: str) -> None:
    (path.parent / folder).mkdir(exist_ok=True)
    for name, text in files.items():
        (path.parent / folder / f"{name}.yml").write_text(text)


def test_programs_and_requirements(path: Path) -> None:
    beside(path, transformations=TRANSFORMATIONS, sites=SITES)
    prep, calc = read_workflow(path).tasks
    assert (prep.command[0], prep.command[-1], prep.runtime, prep.cores) == ("/opt/prep", "f.in", 30.0, 2)
    # What the workflow says goes first; what neither says is the site's.
    assert (calc.command, calc.runtime, calc.memory_bytes) == (("/opt/calc",), 7.0, 512 << 20)
    assert prep.memory_bytes == 100 << 20
    said = " ".join(read_workflow(path).warnings)
    assert "env.X" in said and "universe" not in said and "style" not in said


def test_places_and_sizes_of_raw_files(path: Path) -> None:
    beside(path, replicas=REPLICAS)
    flow = read_workflow(path)
    # The first that is on this machine; what a task writes is no raw file.
    assert flow.locations == {"f.in": str(path.parent / "data/raw.in")}
    assert flow.sizes == {"f.in": 4_000_000}


def test_what_the_workflow_says_goes_before_the_files_beside_it(path: Path) -> None:
    beside(path, transformations=TRANSFORMATIONS, replicas=REPLICAS)
    if path.suffix == ".yml":
        path.write_text(
            WORKFLOW
            + """\
transformationCatalog: {transformations: [{name: prep, sites: [{name: pool, pfn: /own/prep}],
  profiles: {pegasus: {runtime: 3}}}]}
replicaCatalog: {replicas: [{lfn: f.in, size: 9, pfns: [{site: local, pfn: /own/f.in}]}]}
"""
        )
    else:
        path.write_text(
            DAX.replace(
                'name="w">',
                """name="w"><executable name="prep" installed="true">
<profile namespace="pegasus" key="runtime">3</profile><pfn url="file:///own/prep" site="pool"/></executable>
<file name="f.in" size="9"><pfn url="file:///own/f.in" site="local"/></file>""",
            )
        )
    flow = read_workflow(path)
    prep = flow.tasks[0]
    assert (prep.command[0], prep.runtime, flow.sizes["f.in"]) == ("/own/prep", 3.0, 9)
    assert flow.locations == {"f.in": "/own/f.in"}


def test_properties_name_other_files(path: Path) -> None:
    beside(path, transformations="pegasus: '5.0'\ntransformations: []\n")
    beside(path, "cat", tc=TRANSFORMATIONS, rc=REPLICAS.replace("data/raw.in", "../data/raw.in"))
    (path.parent / "pegasus.properties").write_text(
        "# where\nbase = cat\npegasus.catalog.transformation.file: ${base}/tc.yml\n"
        "pegasus.catalog.replica=YAML\npegasus.catalog.replica.file = \\\n   cat/rc.yml\n"
        "pegasus.catalog.site.file = no.yml\ncondor.request_memory = 64\ncondor.universe = vanilla\n"
    )
    flow = read_workflow(path)
    assert flow.tasks[0].command[0] == "/opt/prep"
    assert [task.memory_bytes for task in flow.tasks] == [64 << 20, 512 << 20]
    assert Path(flow.locations["f.in"]).resolve() == path.parent.resolve() / "data/raw.in"
    assert "catalogues that are not there: no.yml" in flow.warnings


def test_patterns_of_replicas(path: Path) -> None:
    beside(path, replicas="pegasus: '5.0'\nreplicas:\n- lfn: 'f\\.(.*)'\n  regex: true\n"
           "  pfns: [{site: local, pfn: '/data/[1]/[0]'}]\n")  # fmt: skip
    assert read_workflow(path).locations == {"f.in": "/data/in/f.in"}


def test_containers_and_catalogues_of_old_are_named(path: Path) -> None:
    beside(path, transformations=TRANSFORMATIONS.replace("pfn: /opt/calc", "pfn: /opt/calc, container: box"))
    (path.parent / "pegasus.properties").write_text("pegasus.catalog.site.file = sites.xml\n")
    (path.parent / "sites.xml").write_text("<config/>\n")
    flow = read_workflow(path)
    assert "programs in containers, which are run without them: calc (box)" in flow.warnings
    assert "catalogues in formats that are not read: sites.xml" in flow.warnings


SITES_XML = """<?xml version="1.0"?>
<!-- made by hand -->
<sitecatalog xmlns="http://pegasus.isi.edu/schema/sitecatalog" version="4.0">
 <site handle="pool" arch="x86_64" os="LINUX">
  <directory type="shared-scratch" path="/scratch"><file-server operation="all" url="file:///scratch"/></directory>
  <grid type="gt5" contact="x" scheduler="PBS"><profile namespace="pegasus" key="memory">9</profile></grid>
  <profile namespace="pegasus" key="cores"> 3 </profile>
  <profile namespace="env" key="HOME">/home</profile>
 </site>
 <site handle="other"><profile namespace="pegasus" key="cores">7</profile></site>
</sitecatalog>
"""
TC = 'tr prep {\n  site pool {\n    pfn "/old/prep"\n    arch "x86_64"\n  }\n}\n'
RC = 'f.in file:///old/f.in site="local"\n'


def test_catalogues_of_pegasus_4_beside_a_workflow(path: Path) -> None:
    for name, text in (("sites.xml", SITES_XML), ("tc.txt", TC), ("rc.txt", RC)):
        (path.parent / name).write_text(text)
    flow = read_workflow(path)
    assert (flow.tasks[0].command[0], flow.tasks[0].cores) == ("/old/prep", 3)
    assert flow.tasks[0].memory_bytes is None  # the gatekeeper's is not of the jobs
    assert flow.locations == {"f.in": "/old/f.in"}
    # Those of Pegasus 5 go before.
    beside(path, replicas="pegasus: '5.0'\nreplicas: [{lfn: f.in, pfns: [{site: local, pfn: /new/f.in}]}]\n")
    assert read_workflow(path).locations == {"f.in": "/new/f.in"}


@pytest.mark.parametrize(
    "old", ["<sitecatalog version='2.0'><site sid='pool'>", "<s:sitecatalog xmlns:s='urn:x'><s:site handle='pool'>"]
)
def test_site_catalogues_of_other_versions(path: Path, old: str) -> None:
    (path.parent / "tc.data").write_text(TC)
    prefix = "s:" if "s:site" in old else ""
    profile = f"<{prefix}profile namespace='Condor' key='request_cpus'>5</{prefix}profile>"
    (path.parent / "sites.xml").write_text(f"{old}{profile}</{prefix}site></{prefix}sitecatalog>")
    assert read_workflow(path).tasks[0].cores == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<sitecatalog>\n<site>", r"sites.xml:2: it is no XML"),
        ("<!DOCTYPE s [<!ENTITY a 'b'>]>\n<sitecatalog/>", r"sites.xml:1: it declares entities"),
    ],
)
def test_mistakes_of_a_site_catalogue(path: Path, text: str, words: str) -> None:
    (path.parent / "sites.xml").write_text(text)
    with pytest.raises(WorkflowError, match=words):
        read_workflow(path)


def test_text_catalogues_of_pegasus_4(path: Path) -> None:
    (path.parent / "pegasus.properties").write_text(
        "pegasus.catalog.replica = File\npegasus.catalog.replica.file = rc.txt\n"
        "pegasus.catalog.transformation.file = tc.txt\n"
    )
    (path.parent / "rc.txt").write_text(
        '# raw\nf.in https://example.org/f.in site="web"\nf.in data/raw.in site="local"\nmid /m pool="a" x=y\n'
    )
    (path.parent / "tc.txt").write_text("""\
# programs
tr prep {
    profile pegasus "runtime" "30"   # seconds
    site far { profile condor "request_cpus" "9" pfn "https://example.org/prep" type "STAGEABLE" }
    site pool {
        profile condor "request_cpus" "2"
        pfn "/opt/prep"
        arch "x86_64"
        type "INSTALLED"
    }
}
tr n::calc:1 { site pool { pfn "file:///opt/calc" container "box" } }
cont box { type "docker" image "docker:///x/y" }
""")
    flow = read_workflow(path)
    prep, calc = flow.tasks
    assert (prep.command[0], prep.runtime, prep.cores) == ("/opt/prep", 30.0, 2)
    assert (calc.command[0], calc.runtime) == ("/opt/calc", 7.0)
    assert flow.locations == {"f.in": str(path.parent / "data/raw.in")}
    assert "programs in containers, which are run without them: calc (box)" in flow.warnings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pegasus: '5.0'\nreplicas: [{lfn: a, size: big}]\n", "replicas.yml:2: the size of 'a' is 'big'"),
        ("pegasus: '5.0'\nreplicas: [3]\n", "replicas.yml:2: an item of 'replicas' is no mapping"),
        ("pegasus: '5.0'\nreplicas:\n- {lfn: 'a(', regex: true}\n", r"replicas.yml:3: the lfn 'a\(' is no regular"),
        ("a: [\n", r"replicas.yml:\d: it is no YAML"),
    ],
)
def test_mistakes_are_told_with_their_place(path: Path, text: str, words: str) -> None:
    beside(path, replicas=text)
    with pytest.raises(WorkflowError, match=words):
        read_workflow(path)


def test_an_inner_workflow_has_the_catalogues_of_its_own_properties(path: Path) -> None:
    beside(path, transformations=TRANSFORMATIONS)
    beside(path, "cat", tc=TRANSFORMATIONS.replace("/opt/prep", "/inner/prep"))
    (path.parent / "inner.properties").write_text("pegasus.catalog.transformation.file = cat/tc.yml\n")
    outer = path.with_name("outer.yml")
    outer.write_text(
        f"pegasus: 5.0.4\nname: o\njobs:\n- {{type: pegasusWorkflow, id: S, file: {path.name}, "
        "arguments: [--conf, inner.properties, -v]}\n- {type: job, id: A, name: prep}\n"
    )
    flow = read_workflow(outer)
    assert {task.id: task.command[0] for task in flow.tasks} == {
        "S/A": "/inner/prep", "S/B": "/opt/calc", "A": "/opt/prep"
    }  # fmt: skip


@pytest.mark.slow
def test_a_run_takes_raw_files_and_programs_from_where_the_catalogues_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    (tmp_path / "flow").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "raw").write_text("3\n1\n2\n")
    flow = tmp_path / "flow" / "w.dax"
    flow.write_text("""<adag version="3.6" name="w">
<job id="A" name="order"><argument><file name="f.in"/></argument><stdout name="mid" link="output"/>
<uses name="f.in" link="input"/></job>
<job id="B" name="count"><argument>-l</argument><stdin name="mid" link="input"/><stdout name="n" link="output"/></job>
</adag>""")
    beside(flow, replicas="pegasus: '5.0'\nreplicas:\n- {lfn: f.in, pfns: [{site: local, pfn: ../store/raw}]}\n",
           transformations="pegasus: '5.0'\ntransformations:\n- {name: order, sites: [{name: a, pfn: sort}]}\n"
           "- {name: count, sites: [{name: a, pfn: wc}]}\n")  # fmt: skip
    (tmp_path / "vms.yaml").write_text("vms: [{kind: one, count: 1}]\n")
    plan, place = tmp_path / "plan.json", tmp_path / "run"
    assert run(["workflow", "plan", str(flow), "--vms", str(tmp_path / "vms.yaml"), "--out", str(plan)]) == 0
    assert run(["workflow", "run", str(plan), "--folder", str(place), "--quiet", "--gather", "0s"]) == 0
    assert (place / "files" / "mid").read_text() == "1\n2\n3\n"
    assert (place / "files" / "n").read_text().split() == ["3"]


@needs_datasets
def test_real_catalogues() -> None:
    flow = read_workflow(DATASETS / "formats/pegasus5/held/workflow.yml")
    assert flow.tasks[0].command == ("/home/user/covid/bin/chebi_drug_loader.py",)
    assert flow.locations == {"chebi.obo": "/home/user/covid/data/obofiles/chebi.obo"}
    assert read_workflow(DATASETS / "formats/pegasus5/process/workflow.yml").tasks[0].command[3] == "/bin/ls"
