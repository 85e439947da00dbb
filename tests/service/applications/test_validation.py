"""What may be registered, and what is said about what may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import SpecError
from tradewind.problem.yaml_source import parse_source
from tradewind.service.applications.validation import CheckedApplication, check_application

GOOD = """\
name: heat
job:
  command: ["{{ python }}", heat.py, "--size={{ size }}", "--name={{ name }}", "--method={{ method }}"]
  env: {FIELD_NAME: "{{ name }}"}
  outputs: [out/*.csv]
space:
  instance: {provider: local}
  ranks: [1, 2]
application:
  title: Heat
  fields:
    size: {type: integer, min: 1, max: 4096, default: 64, unit: cells}
    name: {type: text, default: run, data: [command.3, env.FIELD_NAME, files.settings.json]}
    method: {type: choice, choices: [explicit, implicit], default: explicit}
    tolerance: {type: number, default: 0.001, when: {method: implicit}}
    mesh: {type: file, required: false, suffix: .msh, max: 1}
  files:
    heat.py: print("hello")
    settings.json:
      template: true
      text: '{"size": {{ size }}, "name": {{ name | tojson }}}'
"""


def read(text: str, *, trusted: bool = True, hooks: bool = False) -> CheckedApplication:
    return check_application(parse_source(text, "heat.yaml"), trusted=trusted, hooks=hooks)


def changed(old: str, new: str) -> str:
    assert old in GOOD, old
    return GOOD.replace(old, new, 1)


def test_a_good_one_is_taken_from_anybody() -> None:
    for trusted in (True, False):
        known = read(GOOD, trusted=trusted)
        assert (known.name, list(known.model.fields)) == ("heat", ["size", "name", "method", "tolerance", "mesh"])


def test_without_a_space_the_machine_is_chosen() -> None:
    known = read("name: a\njob: {command: [a]}\napplication:\n")
    assert [(p.name, p.kind) for p in known.spec.parameters] == [("instance", "instance")]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("application:\n  title: Heat", "aplication:\n  title: Heat", 1, "there is no block 'application'"),
        ("type: integer", "type: integr", 12, "'integr' should be"),
        ("min: 1, max: 4096", "min: 10, max: 5", 12, "min 10 is above max 5"),
        ("default: 64", "default: 0", 12, "default: 0 is below 1 cells"),
        ("default: 64", "default: many", 12, "default: 'many' is no number"),
        ("default: 64", "defualt: 64", 12, "did you mean 'default'?"),
        ("unit: cells", "choices: [1]", 12, "choices means nothing for a field of type integer"),
        ("choices: [explicit, implicit], ", "", 14, "a choice has no choices"),
        ("default: explicit", "default: both", 14, "default: 'both' is none of the choices"),
        ("[explicit, implicit]", "[1, 1.0]", 14, "stands twice"),
        ("when: {method: implicit}", "when: {methd: implicit}", 15, "there is no field 'methd' above it"),
        ("when: {method: implicit}", "when: {method: euler}", 15, "'euler' is none of the choices"),
        ("when: {method: implicit}", "when: {mesh: x}", 15, "there is no field 'mesh' above it"),
        ("default: 0.001, ", "", 15, "the job needs a value where the field is hidden"),
        ("type: file, required: false", "type: file, default: x", 16, "default means nothing"),
        ("    size: {type", "    si ze: {type", 12, "'si ze' is no name for a field"),
        ("    size: {type", "    ranks: {type", 12, "is a parameter of the space"),
        ("    size: {type", "    nodes: {type", 12, "means something else in templates"),
        (
            "    name: {type: text, default: run, data: [command.3, env.FIELD_NAME, files.settings.json]}",
            "    mesh_bytes: {type: text, default: x}",
            13,
            "is the size of mesh",
        ),
        ("size }}", "sise }}", 3, "did you mean 'size'?"),
        ("{{ size }},", "{{ sise }},", 19, "the template of settings.json names 'sise'"),
        ("{{ size }},", "{% include name %}", 19, "uses 'include', which is not allowed"),
        ("{{ size }},", "{{ size },", 19, "cannot read the template of settings.json"),
        ("    heat.py:", "    ../heat.py:", 18, "is no name for a file"),
        ("    heat.py:", "    uploads/heat.py:", 18, "uploads, inputs, outputs are taken"),
        ("  outputs: [out/*.csv]", "  workdir: /opt/heat", 5, "where heat.py is not"),
        ("ranks: [1, 2]", "ranks: []", 8, "space.ranks"),
        ("name: heat\n", "name: heat\nbugdet: 1\n", 2, "did you mean 'budget'?"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(changed(old, new))
    assert words in str(caught.value)
    assert (caught.value.file, caught.value.line) == ("heat.yaml", line)


TEXT = "the text 'name' "


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('["{{ python }}", heat.py,', '["{{ name }}", heat.py,'),
        ('["{{ python }}", heat.py,', '[sh, -c, "heat {{ name }}",'),
        ('["{{ python }}", heat.py,', '[bash, -lc, "heat --name={{ name }}",'),
        ('["{{ python }}", heat.py,', '[perl, -e, "print {{ name }}",'),
        ('["{{ python }}", heat.py,', '[mpirun, "{{ name }}",'),
        ('["{{ python }}", heat.py,', '[/usr/bin/env, "{{ name }}",'),
        ('["{{ python }}", heat.py,', '[ssh, host, "--name={{ name }}",'),
        ('["{{ python }}", heat.py,', '["{{ python }}", "-c{{ name }}",'),
        ('["{{ python }}", heat.py,', '["{{ python }}", -c, "{% for c in name %}{{ c }}{% endfor %}",'),
        ("FIELD_NAME:", "LD_PRELOAD:"),
        ("FIELD_NAME:", "PYTHONPATH:"),
        ("FIELD_NAME:", "BASH_ENV:"),
    ],
)
def test_text_that_people_type_is_no_program(old: str, new: str) -> None:
    with pytest.raises(SpecError, match=TEXT):
        read(changed(old, new))


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "{{ name }}"}',
        '{"name": {{ name | tojson }}, "again": {{ name }}}',
        "{{ name | upper | tojson }}",
        "{{ (name ~ 'x') | tojson }}",
        "{% for c in name %}{{ c | tojson }}{% endfor %}",
    ],
)
def test_text_that_people_type_is_quoted_in_files(text: str) -> None:
    old = """'{"size": {{ size }}, "name": {{ name | tojson }}}'"""
    with pytest.raises(SpecError, match=r"written into the file as it is typed .*name \| tojson"):
        read(changed(old, f"{text!r}" if '"' in text else f'"{text}"'))


@pytest.mark.parametrize("name", ["run.sh", "job.SBATCH", "solve.py", "main"])
def test_a_script_is_no_template(name: str) -> None:
    text = "#!/bin/sh\\necho {{ size }}" if name == "main" else "echo {{ size }}"
    with pytest.raises(SpecError, match="a script is no template"):
        read(changed("    settings.json:", f'    {name}: {{template: true, text: "{text}"}}\n    settings.json:'))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("application:\n", "catalogues: {csv: {path: /etc/passwd}}\napplication:\n", "only an administrator may set"),
        ("application:\n", "deploy: {runner: process}\napplication:\n", "the backend's to say"),
        ("application:\n", "deploy: {results: /tmp}\napplication:\n", "the backend's to say"),
        ("application:\n", "deploy: {hooks: {before_booting: touch /x}}\napplication:\n", "hooks run on the server"),
        ("  outputs:", "  secrets: {KEY: 'env:HOME'}\n  outputs:", "only an administrator may use this"),
        ("  outputs:", "  inputs: [/etc/passwd]\n  outputs:", "only embedded files can be inputs"),
        ("  outputs:", "  inputs: ['http://169.254.169.254/']\n  outputs:", "only embedded files can be inputs"),
        ("application:\n", "interpret: {use: python, function: 'os:getcwd'}\napplication:\n", "the server would run"),
        ("application:\n", "select: {use: python, function: 'os:getcwd'}\napplication:\n", "the server would run"),
        (
            "application:\n",
            "searcher: {use: paris, table: /etc/passwd}\napplication:\n",
            "table is a file of the server",
        ),
    ],
)
def test_ordinary_users_reach_nothing_of_the_server(old: str, new: str, words: str) -> None:
    text = changed(old, new)
    with pytest.raises(SpecError, match=words) as caught:
        read(text, trusted=False)
    assert caught.value.line is not None


@pytest.mark.parametrize(
    "text",
    [
        "searcher: 'FILE:Mine'",
        "searcher: {use: 'FILE:Mine'}",
        "select: 'FILE:Mine'",
        "early_stop: 'FILE:Mine'",
        "interpret: ['FILE:Mine']",
        "deploy: {runner: 'FILE:Mine'}",
        "deploy: {provisioner: {use: 'FILE:Mine'}}",
        "catalogues: {'FILE:Mine': {}}",
        "searcher: 'antigravity:Mine'",
    ],
)
def test_no_file_of_an_ordinary_user_is_run(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    with pytest.raises(SpecError, match="the server would run"):
        read(changed("application:\n", text.replace("FILE", str(file)) + "\napplication:\n"), trusted=False)
    assert not (tmp_path / "run").exists()


def test_ordinary_users_have_no_folder_of_the_server() -> None:
    text = "name: a\njob: {command: [cat, passwd], workdir: /etc}\napplication: {}\n"
    assert read(text).name == "a"
    with pytest.raises(SpecError, match="a folder of the server"):
        read(text, trusted=False)


def test_hooks_of_users_where_they_are_allowed() -> None:
    text = changed("application:\n", "deploy: {hooks: {before_booting: 'true'}}\napplication:\n")
    assert read(text, trusted=False, hooks=True).spec.hooks


@pytest.mark.slow
def test_sizes_are_bounded() -> None:
    fields = "".join(f"    f{i}: {{type: integer, default: 1}}\n" for i in range(101))
    with pytest.raises(SpecError, match="more than 100 fields"):
        read(f"name: a\njob: {{command: [a]}}\napplication:\n  fields:\n{fields}")
    big: dict[str, Any] = {"x" * 65_537: "", "y" * 60_000: "    "}
    for text in big:
        files = "".join(f"    {text[0]}{i}: '{text}'\n" for i in range(5))
        with pytest.raises(SpecError, match=r"at most 65536|too large together"):
            read(f"name: a\njob: {{command: [a]}}\napplication:\n  files:\n{files}")
