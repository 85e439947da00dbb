"""What people type reaches the program as it is, and nothing else reads it: through the whole engine, by a real run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.engine.proposals import FixedSearcher
from tradewind.engine.search_builder import build_problem, build_search, new_study
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context

TEXT = """\
name: echo
job:
  command: ["{{ python }}", echo.py, "--title={{ title }}", "{{ title }}", "{{ title | upper }}", "{{ notes }}"]
  env: {TITLE: "{{ title }}", NOTES: "{{ notes }}"}
  outputs: [said.json]
space:
  instance: {provider: local, vcpu: 1, limit: 1}
application:
  fields:
    title: {type: text}
    notes: {type: text, lines: true, default: ""}
    data: {type: file, required: false}
  files:
    echo.py: |
      import json, os, sys
      from pathlib import Path
      said = {"argv": sys.argv[1:], "env": [os.environ["TITLE"], os.environ["NOTES"]]}
      said |= {"file": json.loads(Path("input.json").read_text()), "folder": sorted(os.listdir("."))}
      (Path(os.environ["TRADEWIND_OUTPUTS"]) / "said.json").write_text(json.dumps(said))
    input.json: {template: true, text: '{"title": {{ title | tojson }}, "notes": {{ notes | tojson }}}'}
"""

NASTY = [
    "$(touch owned) `touch owned` ; touch owned | touch owned & #",
    "'; touch owned; ' \" \\ \\\\ %s %n ${HOME} ~ * ? [a-z] {a,b} !! <in >out",
    "{{ 7 * 7 }} {% for x in range(9) %}x{% endfor %} {# gone #} ${7*7} <%= 7 %> {{ ''.__class__ }}",
    '", "title": "other", "x": "',
    "héé 漢字 🚀 \u202e Ω",
    " leading and trailing ",
]


@pytest.mark.slow
@pytest.mark.parametrize("typed", NASTY)
def test_text_arrives_as_it_was_typed(context: Context, root: Principal, typed: str) -> None:
    row = context.applications.register(root, TEXT)
    backend = context.backends.choose(root, row)
    notes = f"{typed}\n{typed}\n-rf /\n"
    kept = context.applications.values(root, row, {"title": typed, "notes": notes})
    spec = context.applications.spec(row, kept, backend)
    problem = build_problem(spec, context.data_folder)
    study = context.store.create_study(new_study(spec))
    searcher = FixedSearcher(problem, problem.candidates.configuration(0))
    build_search(spec, study, context.store, context.data_folder, problem=problem, searcher=searcher, rules=()).run()
    (trial,) = context.store.trials(study.id)
    (run,) = context.store.runs(study.id)
    assert trial.state == "succeeded", run.reason
    said = json.loads((Path(run.folder) / "outputs/said.json").read_text())
    assert said["argv"] == [f"--title={typed}", typed, typed.upper(), notes]
    assert said["env"] == [typed, notes]
    assert said["file"] == {"title": typed, "notes": notes}
    assert said["folder"] == ["echo.py", "input.json"]
    assert list(context.data_folder.rglob("owned")) == []
