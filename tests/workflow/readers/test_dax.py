"""Pegasus DAX files, and what may be wrong with them."""

from __future__ import annotations

import pytest
from tests.workflow.datasets import DATASETS, dax, needs_datasets, table

from tradewind.errors import WorkflowError
from tradewind.workflow.readers.dax import read_dax

HEAD = '<?xml version="1.0"?>\n<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="2.1">\n'
TWO = """\
<job id="A" name="first" runtime="2.5"><uses file="in" size="10"/><uses file="x" link="output" size="7"/></job>
<job id="B" name="second" runtime="1"><uses file="x" link="input" size="8"/></job>
<child ref="B"><parent ref="A"/></child>
</adag>
"""


def read(body: str, *, lenient: bool = False) -> object:
    return read_dax((HEAD + body).encode(), "w.xml", lenient=lenient)


def test_two_tasks() -> None:
    flow = read_dax((HEAD + TWO).encode(), "folder/w.xml.gz")
    assert [(t.id, t.activity, t.runtime, t.inputs, t.outputs) for t in flow.tasks] == [
        ("A", "first", 2.5, ("in",), ("x",)),
        ("B", "second", 1.0, ("x",), ()),
    ]
    assert flow.name == "w"
    assert flow.parents == ((), (0,))
    assert flow.sizes == {"in": 10, "x": 8}
    assert flow.warnings == ("files declared with several sizes, of which the first as an input holds: x",)


def test_version_three() -> None:
    body = """\
<job id="A" name="keg"><argument>-o <file name="y"/></argument><profile namespace="x" key="runtime">3</profile>
<uses name="y" link="output" size="4"/><uses name="keg" link="input" executable="true"/></job></adag>"""
    flow = read_dax((HEAD + body).encode(), "w.xml")
    assert flow.tasks[0].runtime == 3.0
    assert flow.tasks[0].inputs == ()
    assert flow.tasks[0].outputs == ("y",)


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("</adag>", None, "no task"),
        ('<job id="A" runtime="x"/></adag>', 3, "is 'x', not a number"),
        ('<job id="A" runtime="-1"/></adag>', 3, "not a number of 0 or more"),
        ('<job id="A" runtime="nan"/></adag>', 3, "not a number of 0 or more"),
        ('<job name="A"/></adag>', 3, "<job> has no id"),
        ('<job id="A"/>\n<job id="A"/></adag>', 4, "two tasks 'A'"),
        ('<job id="A"/>\n<child ref="A"><parent ref="Z"/></child></adag>', 4, "names task 'Z', which is not there"),
        ('<job id="A"/>\n<child ref="A"><parent ref="A"/></child></adag>', 4, "waits for itself"),
        (
            '<job id="A"/><job id="B"/><child ref="A"><parent ref="B"/></child>'
            '<child ref="B"><parent ref="A"/></child></adag>',
            3,
            "in a circle: ",
        ),
        ('<job id="A"><uses file="f" size="-5"/></job></adag>', 3, "has a size of -5"),
        ('<job id="A"><uses file="f" size="nan"/></job></adag>', 3, "the size of file 'f' is 'nan', not a number"),
        ('<job id="A"><uses file="f" size="1e400"/></job></adag>', 3, "the size of file 'f' is '1e400', not a number"),
        ('<job id="A"><uses file="f" size="1e30"/></job></adag>', 3, "file 'f' of task 'A' has a size of 1000"),
        ('<job id="A" cores="nan"/></adag>', 3, "the cores of task 'A' is 'nan', not a number"),
        ('<job id="A" cores="inf"/></adag>', 3, "the cores of task 'A' is 'inf', not a number"),
        ('<job id="A">', 3, "no XML"),
    ],
)
def test_what_is_wrong_has_a_place(body: str, line: int | None, words: str) -> None:
    with pytest.raises(WorkflowError, match=words) as caught:
        read(body)
    assert caught.value.file == "w.xml"
    assert caught.value.line == line


def test_what_counts_as_nothing_is_said() -> None:
    flow = read_dax((HEAD + '<job id="A" runtime=""/><job id="B" runtime="2"/></adag>').encode(), "w.xml")
    assert flow.warnings == ("tasks without a run time, which count as 0 s: A",)
    flow = read_dax((HEAD + '<dax id="A" runtime="1"/><dag id="B" runtime="2"/></adag>').encode(), "w.xml")
    assert flow.warnings == ("tasks that are workflows of their own, each taken as one task: A, B",)


def test_other_files() -> None:
    for text, words in ((b"", "no XML"), (b"<html></html>", "no DAX"), (b"\x00\x01", "no XML")):
        with pytest.raises(WorkflowError, match=words):
            read_dax(text, "w.xml")
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><adag><job id="&b;"/></adag>'
    with pytest.raises(WorkflowError, match="entities"):
        read_dax(bomb, "w.xml")


@pytest.mark.parametrize("encoding", ["UTF-9", "utf-7", "shift_jis", "klingon", "9" * 5000])
def test_an_encoding_that_is_not_read_is_one_line(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>\n<adag version="3.6"></adag>'.encode()
    with pytest.raises(WorkflowError, match=r"w\.xml:1: it is no XML"):
        read_dax(text, "w.xml")


def test_latin_1_is_read() -> None:
    body = '<adag name="é"><job id="A" name="ü" runtime="1"/></adag>'
    flow = read_dax(f'<?xml version="1.0" encoding="ISO-8859-1"?>\n{body}'.encode("latin-1"), "w.xml")
    assert flow.tasks[0].activity == "ü"


def test_sizes_below_zero_may_be_taken_without_their_sign() -> None:
    flow = read_dax((HEAD + '<job id="A"><uses file="f" size="-5"/></job></adag>').encode(), "w.xml", lenient=True)
    assert flow.sizes == {"f": 5}
    assert "files with a size below zero, taken without its sign: f" in flow.warnings


@needs_datasets
@pytest.mark.parametrize("row", table("dax", "index.csv"), ids=lambda row: row["file"])
def test_every_graph_of_the_datasets(row: dict[str, str]) -> None:
    assert DATASETS.is_dir()
    flow = dax(row["file"].removesuffix(".xml.gz"))
    assert (len(flow), flow.edges) == (int(row["tasks"]), int(row["edges"]))
    assert len({task.activity for task in flow.tasks}) == int(row["task_types"])
    # Some times of the largest Epigenomics graph are below zero: they count as 0 s, not as time won back.
    below = 21.96 if "Epigenomics_997" in row["file"] else 0.0
    assert flow.runtimes.sum() == pytest.approx(float(row["total_runtime_s"]) + below, abs=0.01)
    assert flow.critical_path()[0] == pytest.approx(float(row["critical_path_s"]), abs=0.01)
    assert len(flow.sizes) == int(row["files"])


def test_the_name_of_the_document() -> None:
    assert read_dax(b'<adag name="chain"><job id="A" runtime="1"/></adag>', "w.xml").name == "chain"


def test_sizes_of_metadata() -> None:
    text = b"""<adag version="3.6"><file name="in"><metadata key="size">1500</metadata></file>
<file name="both"><metadata key="size">1</metadata></file>
<job id="A" runtime="1"><uses name="in" link="input"/><uses name="both" link="input" size="2"/>
<uses name="o" link="output"><metadata key="size">12 MB</metadata></uses></job></adag>"""
    assert read_dax(text, "w.xml").sizes == {"in": 1500, "both": 2, "o": 12_000_000}


def test_kinds_of_use() -> None:
    body = """\
<job id="ID1" name="first" runtime="10">
<uses file="tool.exe" link="input" type="executable" size="150"/>
<uses file="in.dat" link="input" optional="true" type="data" size="0"/>
<uses file="mid" link="output" type="data" size="15"/>
<uses file="built" link="output" type="executable" size="7"/>
<uses file="ckpt" link="checkpoint" size="150"/>
<uses file="ctl" link="none" size="150"/></job>
<job id="ID2" name="second" runtime="10"><uses file="mid" link="input"/>
<uses file="built" executable="true"/></job></adag>"""
    flow = read_dax((HEAD + body).encode(), "w.xml")
    first, second = flow.tasks
    assert (first.inputs, first.outputs, first.optional) == (("in.dat",), ("mid", "built"), ("in.dat",))
    # A program that another task writes is data: it has to be there first.
    assert second.inputs == ("mid", "built")
    assert flow.sizes == {"in.dat": 0, "mid": 15, "built": 7}
    assert flow.warnings == ("files that are checkpoints and are left out: ckpt",)
    with pytest.raises(WorkflowError, match="the use of file 'x' by task 'A' is 'sideways'") as caught:
        read('<job id="A"><uses file="x" link="sideways"/></job></adag>')
    assert caught.value.line == 3


def test_commands_of_jobs() -> None:
    body = """\
<executable name="keg" namespace="n" version="1"><pfn url="file:///usr/bin/keg" site="local"/></executable>
<job id="A" namespace="n" name="keg" version="1"><argument>-a "two words"
  <file name="f.a"/> -o <filename file="f.b"/></argument><stdout name="f.out" link="output"/></job>
<job id="B" name="wc"><stdin file="f.out"/><stderr name="err"/></job>
<job id="C" name="plain" runtime="1"/></adag>"""
    flow = read_dax((HEAD + body).encode(), "w.xml")
    words = ("/usr/bin/keg", "-a", "two words", "f.a", "-o", "f.b")
    assert [task.command for task in flow.tasks] == [
        ("sh", "-c", 'exec "$0" "$@" >f.out', *words), ("sh", "-c", 'exec "$0" "$@" <f.out 2>err', "wc"), ("plain",)
    ]  # fmt: skip
    # A stream is a use, too, where the file does not list it.
    assert [(task.inputs, task.outputs) for task in flow.tasks[:2]] == [((), ("f.out",)), (("f.out",), ("err",))]
    assert flow.parents == ((), (0,), ())
    # Generators write jobs without arguments: there is nothing to run.
    assert [task.command for task in read_dax((HEAD + TWO).encode(), "w.xml").tasks] == [(), ()]


def test_two_jobs_of_one_id_are_refused_with_both_lines() -> None:
    with pytest.raises(WorkflowError, match=r"w.xml:5: there are two tasks '-' \(.*; the first is in line 3\)"):
        read('<job id="-"/>\n\n<job id="-"/></adag>')


@needs_datasets
def test_the_sample_of_the_schema_is_refused_because_its_ids_are_all_the_same() -> None:
    path = DATASETS / "formats/dax/sample-3.2.xml"
    with pytest.raises(WorkflowError, match=r"sample-3.2.xml:84: there are two tasks '-'"):
        read_dax(path.read_bytes(), str(path))


@pytest.mark.parametrize("element", ["dflow", "group"])
def test_jobs_within_an_element_do_not_vanish(element: str) -> None:
    body = f"""\
<job id="P" runtime="5"/>
<{element} id="F"><job id="K1" runtime="100"/><part><job id="K2" runtime="100"/></part></{element}>
<job id="E" runtime="1"/>"""
    flow = read_dax((HEAD + body + "</adag>").encode(), "w.xml")
    assert [task.id for task in flow.tasks] == ["P", "K1", "K2", "E"]
    assert "tasks within another element, read as tasks of their own: K1, K2" in flow.warnings
    edges = '<child ref="F"><parent ref="P"/></child><child ref="E"><parent ref="F"/></child></adag>'
    assert read_dax((HEAD + body + edges).encode(), "w.xml").parents == ((), (0,), (0,), (1, 2))
