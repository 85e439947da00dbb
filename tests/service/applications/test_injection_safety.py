"""What people type reaches the program as it is, and nothing takes it for code: forms of injection, tried for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tradewind.engine.proposals import FixedSearcher
from tradewind.engine.search_builder import build_problem, build_search, new_study
from tradewind.errors import ConflictError, ForbiddenError, SpecError
from tradewind.problem.yaml_source import YamlSource, parse_source
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.validation import check_application, stored_application
from tradewind.service.context import Context
from tradewind.store.service.applications import ApplicationRow


@dataclass(frozen=True)
class Form:
    """A way in which text that is typed would run as code.

    Attributes:
        command: The command; ``TEXT`` is what is typed.
        typed: What somebody types who means harm.
        env: Variables.
        files: Files of the job's folder.
        needs: What has to be installed to try it.
    """

    command: list[str]
    typed: str
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    needs: str = ""

    @property
    def program(self) -> str:
        return self.needs or self.command[0]

    def document(self, *, declared: bool) -> dict[str, object]:
        """The document of an application that lets it in."""
        hole = "{{ text | tojson }}" if any("TEXT" in one for one in self.files.values()) else "{{ text }}"
        places = [f"command.{i}" for i, word in enumerate(self.command) if "TEXT" in word]
        places += [f"env.{name}" for name, value in self.env.items() if "TEXT" in value]
        places += [f"files.{name}" for name, text in self.files.items() if "TEXT" in text]
        files = {
            name: {"text": text.replace("TEXT", hole), "template": "TEXT" in text} for name, text in self.files.items()
        }
        job = {
            "command": [word.replace("TEXT", hole) for word in self.command],
            "env": {name: value.replace("TEXT", hole) for name, value in self.env.items()},
        }
        text = {"type": "text", "lines": True, "data": places if declared else []}
        return {"name": "form", "job": job, "application": {"fields": {"text": text}, "files": files}}

    def attack(self, folder: Path) -> None:
        """Run the command as it would run if the text was let in."""
        for name, text in self.files.items():
            (folder / name).write_text(text.replace("TEXT", json.dumps(self.typed)))
        words = [word.replace("TEXT", self.typed) for word in self.command]
        env = {name: value.replace("TEXT", self.typed) for name, value in self.env.items()}
        given = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **env}
        subprocess.run(words, cwd=folder, env=given, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


NUMBERS = {"numbers": "1 2 3\n"}
TOUCH = "touch owned"

FORMS = {
    # Those that were reported.
    "awk": Form(["awk", "TEXT", "numbers"], f'BEGIN {{ system("{TOUCH}") }}', files=NUMBERS),
    "awk in a part of a word": Form(["awk", "{ print $1 TEXT }", "numbers"], f'; system("{TOUCH}")', files=NUMBERS),
    "sed": Form(["sed", "TEXT", "numbers"], f"1e {TOUCH}", files=NUMBERS),
    "node -p": Form(["node", "-p", "TEXT"], f"require('child_process').execSync('{TOUCH}')"),
    "gdb -ex": Form(["gdb", "-batch", "-ex", "TEXT"], f"shell {TOUCH}"),
    "make": Form(["make", "-f", "rules.mk", "NAME=TEXT"], f"$(shell {TOUCH})", files={"rules.mk": "all: $(NAME)\n"}),
    "sqlite3": Form(["sqlite3", ":memory:", "TEXT"], f".shell {TOUCH}"),
    "php -r": Form(["php", "-r", "TEXT"], f"system('{TOUCH}');"),
    "matlab -batch": Form(["matlab", "-batch", "TEXT"], f"system('{TOUCH}')"),
    "GIT_SSH_COMMAND": Form(["git", "ls-remote", "ssh://nowhere/x"], f"{TOUCH};", {"GIT_SSH_COMMAND": "TEXT"}),
    "R_PROFILE_USER": Form(["Rscript", "-e", "1"], "owned.R", {"R_PROFILE_USER": "TEXT"}),
    # And others.
    "find -exec": Form(["find", "numbers", "TEXT", "touch", "owned", ";"], "-exec", files=NUMBERS),
    "xargs": Form(["xargs", "-a", "numbers", "TEXT", "-c", TOUCH], "sh", files=NUMBERS),
    "env -S": Form(["env", "-S", "TEXT"], TOUCH),
    "script -c": Form(["script", "-qc", "TEXT", "/dev/null"], TOUCH),
    "flock": Form(["flock", "numbers", "-c", "TEXT"], TOUCH, files=NUMBERS),
    "m4": Form(["m4", "-D", "NAME=TEXT", "text.m4"], f"syscmd({TOUCH})", files={"text.m4": "NAME\n"}),
    "tclsh": Form(["tclsh", "text.tcl", "TEXT"], f"exec {TOUCH}", files={"text.tcl": "eval [lindex $argv 0]\n"}),
    "vim -c": Form(["vim", "-es", "-u", "NONE", "-c", "TEXT", "-c", "q!"], f"!{TOUCH}"),
    "tar": Form(
        ["tar", "cf", "x.tar", "--checkpoint=1", "--checkpoint-action=TEXT", "numbers"], f"exec={TOUCH}", files=NUMBERS
    ),
    "zip": Form(["zip", "x.zip", "numbers", "-T", "-TT", "TEXT"], f"{TOUCH} #", files=NUMBERS),
    "git -c": Form(["git", "-c", "alias.x=TEXT", "x"], f"!{TOUCH}"),
    "git --upload-pack": Form(["git", "ls-remote", "--upload-pack=TEXT", "."], f"{TOUCH};"),
    "ssh -o": Form(["ssh", "-o", "TEXT", "nowhere"], f"ProxyCommand={TOUCH}"),
    "mpirun": Form(["mpirun", "-np", "1", "true", "TEXT", "-np", "1", "touch", "owned"], ":"),
    "busybox": Form(["busybox", "TEXT", "-c", TOUCH], "sh"),
    "perl -ne": Form(["perl", "-ne", "TEXT", "numbers"], f"system('{TOUCH}')", files=NUMBERS),
    "perl reads names": Form(["perl", "text.pl", "TEXT"], f"{TOUCH} |", files={"text.pl": "while (<>) { print }\n"}),
    "python -m": Form(["python3", "-m", "timeit", "-n1", "-r1", "TEXT"], f"__import__('os').system('{TOUCH}')"),
    "python -W": Form(["python3", "TEXT", f"import os; os.system('{TOUCH}')"], "-c"),
    "cmake -E": Form(["cmake", "-E", "TEXT", "touch", "owned"], "env"),
    "sh -c": Form(["sh", "-c", "echo TEXT"], f"x; {TOUCH}"),
    "sh of a file": Form(["sh", "TEXT", TOUCH], "-c"),
    "the program": Form(["TEXT", "owned"], "touch", needs="touch"),
    "a first line with options": Form(
        ["./text", "TEXT"], TOUCH, files={"text": "#!/usr/bin/env -S sh -c $1\n"}, needs="a shell"
    ),
    "PATH": Form(["numbers"], ".", {"PATH": "TEXT"}, files=NUMBERS, needs="an executable file"),
    "LESSOPEN": Form(["less", "numbers"], f"|{TOUCH}; cat %s", {"LESSOPEN": "TEXT"}, NUMBERS, "a terminal"),
    "MAKEFILES": Form(
        ["make", "-f", "rules.mk"],
        "x.mk",
        {"MAKEFILES": "TEXT"},
        {"rules.mk": "all:\n\t@true\n", "x.mk": f"$(shell {TOUCH})\n"},
    ),
    "FIELD_ of make": Form(
        ["make", "-f", "rules.mk"],
        f"$(shell {TOUCH})",
        {"FIELD_NAME": "TEXT"},
        {"rules.mk": "all:\n\t@echo $(FIELD_NAME)\n"},
    ),
    "PERL5OPT": Form(["perl", "-e", "1"], f"-Mvars;BEGIN{{system'{TOUCH}'}}", {"PERL5OPT": "TEXT"}, needs="more of it"),
    "NODE_OPTIONS": Form(
        ["node", "-e", "1"],
        "--require=./x.js",
        {"NODE_OPTIONS": "TEXT"},
        {"x.js": f"require('child_process').execSync('{TOUCH}')"},
    ),
    "PYTHONSTARTUP": Form(
        ["python3", "-i"], "x.py", {"PYTHONSTARTUP": "TEXT"}, {"x.py": f"import os; os.system('{TOUCH}')"}, "a terminal"
    ),
    "a rules file": Form(["make", "-f", "rules.mk"], f"$(shell {TOUCH})", files={"rules.mk": "all: ; @echo TEXT\n"}),
    "JSON that a program knows": Form(
        ["npm", "run", "text"], TOUCH, files={"package.json": '{"scripts": {"text": TEXT}}'}
    ),
    # Tried later by somebody who wanted in: programs that start others, and variables that name what is read first.
    "nohup": Form(["nohup", "TEXT", "owned"], "touch"),
    "timeout": Form(["timeout", "9", "TEXT", "owned"], "touch"),
    "nice": Form(["nice", "TEXT", "owned"], "touch"),
    "setsid": Form(["setsid", "-w", "TEXT", "owned"], "touch"),
    "stdbuf": Form(["stdbuf", "-o0", "TEXT", "owned"], "touch"),
    "split --filter": Form(["split", "--filter=TEXT", "numbers"], TOUCH, files=NUMBERS),
    "BASH_ENV": Form(["bash", "-c", "true"], "x.txt", {"BASH_ENV": "TEXT"}, {"x.txt": TOUCH}),
    "PYTHONPATH": Form(
        ["python3", "-c", "1"], ".", {"PYTHONPATH": "TEXT"}, {"sitecustomize.py": f"import os; os.system('{TOUCH}')"}
    ),
    "PERL5LIB": Form(["perl", "-MText", "-e", "1"], ".", {"PERL5LIB": "TEXT"}, {"Text.pm": f"system('{TOUCH}'); 1;\n"}),
    "GIT_CONFIG_VALUE": Form(
        ["git", "x"],
        f"!{TOUCH}",
        {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "alias.x", "GIT_CONFIG_VALUE_0": "TEXT"},
    ),
    "a file for gdb": Form(
        ["gdb", "-batch", "-x", "text.gdb"],
        f"; {TOUCH}",
        files={"text.gdb": "shell true TEXT\n"},
        needs="another quoting",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_no_form_of_injection_is_registered(name: str) -> None:
    form = FORMS[name]
    for declared in (False, True):
        source = YamlSource(form.document(declared=declared), "form.yaml")
        for trusted in (False, True):
            with pytest.raises(SpecError, match=r"the text 'text' .+"):
                check_application(source, trusted=trusted, hooks=True)
        # One that was registered before there was this rule, by an ordinary user, runs no more.
        row = ApplicationRow(1, "t", "form", 1, json.dumps(source.document), "ann", trusted=False)
        assert stored_application(row).unsafe


@pytest.mark.slow
def test_the_forms_are_no_straw_men(tmp_path: Path) -> None:
    worked = []
    for number, (name, form) in enumerate(FORMS.items()):
        if shutil.which(form.program) is None:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        form.attack(folder)
        if (folder / "owned").exists():
            worked.append(name)
    installed = [name for name, form in FORMS.items() if shutil.which(form.program)]
    assert len(worked) >= 0.8 * len(installed), sorted(set(installed) - set(worked))


def test_only_an_administrators_word_lets_one_in(context: Context, root: Principal, ann: Principal) -> None:
    document = FORMS["awk"].document(declared=True)
    with pytest.raises(ForbiddenError, match="only an administrator may vouch"):
        context.applications.register(ann, document, vouch=True)
    with pytest.raises(SpecError, match="is an argument of awk, which is no file of the application"):
        context.applications.register(root, document)
    row = context.applications.register(root, document, vouch=True)
    assert context.applications.values(root, row, {"text": "1"}) == {"text": "1"}
    with pytest.raises(SpecError, match="nobody says that it is data"):
        context.applications.register(root, FORMS["awk"].document(declared=False), vouch=True)


def test_one_that_was_registered_without_the_rule_says_what_to_do(context: Context, ann: Principal) -> None:
    text = json.dumps(FORMS["awk"].document(declared=False))
    row = context.applications.store.add(ApplicationRow(0, "physics", "form", 0, text, "ann", trusted=True))
    with pytest.raises(ConflictError, match=r"form@1 cannot run: job\.command: the text 'text' .*register it again"):
        context.applications.values(ann, row, {"text": "1"})


MAY_BE_DATA = [
    '["{{ python }}", read.py, "{{ text }}"]',
    '["{{python}}", ./read.py, a, "--x={{ text }}"]',
    '[python3, read.py, "{{ text }}"]',
    '[/usr/bin/env, read.py, "{{ text }}"]',
    '[sh, read.sh, "{{ text }}"]',
    '[/bin/bash, read.sh, "{{ text }}"]',
    '[node, read.js, "{{ text }}"]',
    '[./read.sh, "{{ text }}"]',
    '[echo, "{{ text }}"]',
    '[python3, -c, "pass", "{{ text }}"]',
    '[python3, other.py, "{{ text }}"]',
    '[node, read.py, "{{ text }}"]',
    '[./read.py, "{{ text }}"]',
    '[./options.sh, "{{ text }}"]',
    '[uploads/sh, read.sh, "{{ text }}"]',
    '[/opt/bin/sh, read.sh, "{{ text }}"]',
    '[read.sh, "{{ text }}"]',
]
TAKEN = [*range(3), *range(4, 9)]
FILES = {"read.py": "pass", "read.js": "1", "read.sh": "#!/bin/sh\n:", "options.sh": "#!/bin/sh -c\n:"}


@pytest.mark.parametrize("number", range(len(MAY_BE_DATA)))
def test_a_word_behind_a_file_of_the_application_is_data(number: int) -> None:
    command = MAY_BE_DATA[number]
    place = command.count(",")
    text = f"name: a\njob: {{command: {command}}}\napplication:\n  files: {json.dumps(FILES)}\n"
    text += f"  fields: {{text: {{type: text, data: [command.{place}]}}}}\n"
    source = parse_source(text, "a.yaml")
    if number in TAKEN:
        check_application(source, trusted=False, hooks=False)
    else:
        with pytest.raises(SpecError, match="the text 'text' "):
            check_application(source, trusted=False, hooks=False)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ('{command: ["{{ data }}"]}', "the file 'data' would name the program"),
        ('{command: [sh, "{{ data }}"]}', "the file 'data' would be a script of sh"),
        ('{command: [python3, "{{ data }}"]}', "the file 'data' would be a script of python3"),
        ('{command: [a], env: {BASH_ENV: "{{ data }}"}}', "the file 'data' is in the variable BASH_ENV"),
        ('{command: [a], load: {command: [sh, "{{ data }}"]}}', "the file 'data' would be a script of sh"),
    ],
)
def test_a_file_that_is_handed_in_is_no_program(job: str, words: str) -> None:
    source = parse_source(f"name: a\njob: {job}\napplication: {{fields: {{data: {{type: file}}}}}}\n", "a.yaml")
    with pytest.raises(SpecError, match=words):
        check_application(source, trusted=True, hooks=False)
    assert check_application(source, trusted=True, hooks=False, vouched=True)


def test_a_declaration_of_a_place_that_does_not_use_the_text_is_an_error() -> None:
    document = FORMS["awk"].document(declared=True)
    document["job"]["command"].insert(1, "-s")  # type: ignore[index]
    source = YamlSource(document, "form.yaml")
    with pytest.raises(SpecError, match=r"used in command\.2, and nobody says|command\.1 does not use this field"):
        check_application(source, trusted=True, hooks=False, vouched=True)


def test_json_that_is_none_when_filled_in_is_refused() -> None:
    text = "name: a\njob: {command: [python3, a.py]}\napplication:\n  fields: {t: {type: text, data: [files.a.json]}}\n"
    text += "  files: {a.py: pass, a.json: {template: true, text: '[\"{{ t | tojson }}\"]'}}\n"
    with pytest.raises(SpecError, match=r"files\.a\.json: filled in, it is no JSON: .*tojson brings its own quotes"):
        check_application(parse_source(text, "a.yaml"), trusted=True, hooks=False)


# ---------------------------------------------------------------------- a real run

NASTY = [
    "$(touch owned) `touch owned` ; touch owned | touch owned & #",
    "'; touch owned; ' \" \\ \\\\ %s %n ${HOME} ~ * ? [a-z] {a,b} !! <in >out\n-rf /\n",
    "{{ 7 * 7 }} {% for x in range(9) %}x{% endfor %} {# gone #} ${7*7} <%= 7 %> {{ ''.__class__ }}",
    '", "title": "other", "x": "',
    "héé 漢字 🚀 \u202e Ω",
    " leading and trailing ",
    *(form.typed for form in FORMS.values() if not form.typed.startswith("-")),
]
ECHO = """\
import json, os, subprocess, sys
from pathlib import Path
names = sorted((name for name in os.environ if name.startswith("FIELD_")), key=lambda name: int(name[6:]))
said = {"argv": sys.argv[1:], "env": [os.environ[name] for name in names]}
said |= {"file": json.loads(Path("input.json").read_text()), "folder": sorted(os.listdir("."))}
(Path(os.environ["TRADEWIND_OUTPUTS"]) / "said.json").write_text(json.dumps(said))
"""


def echo_document() -> dict[str, object]:
    numbers = range(len(NASTY))
    template = "[" + ", ".join(f"{{{{ t{i} | tojson }}}}" for i in numbers) + "]"
    places = {i: [f"command.{i + 2}", f"env.FIELD_{i}", "files.input.json"] for i in numbers}
    return {
        "name": "echo",
        "job": {
            "command": ["sh", "echo.sh", *(f"{{{{ t{i} }}}}" for i in numbers)],
            "env": {f"FIELD_{i}": f"{{{{ t{i} }}}}" for i in numbers},
            "outputs": ["said.json"],
        },
        "space": {"instance": {"provider": "local", "vcpu": 1, "limit": 1}},
        "application": {
            "fields": {f"t{i}": {"type": "text", "lines": True, "data": places[i]} for i in numbers},
            "files": {
                "echo.sh": 'exec python3 echo.py "$@"\n',
                "echo.py": ECHO,
                "input.json": {"template": True, "text": template},
            },
        },
    }


@pytest.mark.slow
def test_text_arrives_as_it_was_typed(context: Context, root: Principal, ann: Principal) -> None:
    context.applications.register(ann, echo_document())
    row = context.applications.register(root, echo_document())
    backend = context.backends.choose(root, row)
    kept = context.applications.values(root, row, {f"t{i}": text for i, text in enumerate(NASTY)})
    spec = context.applications.spec(row, kept, backend)
    problem = build_problem(spec, context.data_folder)
    study = context.store.create_study(new_study(spec))
    searcher = FixedSearcher(problem, problem.candidates.configuration(0))
    build_search(spec, study, context.store, context.data_folder, problem=problem, searcher=searcher, rules=()).run()
    (trial,) = context.store.trials(study.id)
    (run,) = context.store.runs(study.id)
    assert trial.state == "succeeded", run.reason
    said = json.loads((Path(run.folder) / "outputs/said.json").read_text())
    assert said["argv"] == said["env"] == said["file"] == NASTY
    assert said["folder"] == ["echo.py", "echo.sh", "input.json"]
    assert list(context.data_folder.rglob("owned")) == []
