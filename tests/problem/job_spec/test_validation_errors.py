from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.errors import SpecError
from tradewind.problem.job_spec.spec import parse_spec

TEMPLATE = """name: demo
job:
  command: prog {{ level }}
space:
  level: 1..9
  codec: [gzip, bz2]
"""

WRONG = [
    # what is added at the end, from line 7 on, and what is said about it
    ("budgte: {}", "job.yaml:7: unknown key 'budgte' (did you mean 'budget'?)"),
    ("zzz: {}", "job.yaml:7: unknown key 'zzz' (known keys: name, job, space, where, offers,"),
    ("trials: 4", "job.yaml:7: unknown key 'trials' (it stands in budget: write budget: {trials: ...})"),
    ("vcpu: 4", "job.yaml:7: unknown key 'vcpu' (it stands in offers: write offers: {vcpu: ...})"),
    ("low: 4", "job.yaml:7: unknown key 'low' (known keys: name, job,"),
    ("n_trials: 4", "job.yaml:7: unknown key 'n_trials' (write budget: {trials: ...})"),
    ("sampler: tpe", "job.yaml:7: unknown key 'sampler' (write searcher)"),
    ("budget: {deadline: 1h}", "unknown key 'deadline' in budget (it stands in constraints: write constraints: {"),
    ("budget: {parallel: 2}", "unknown key 'parallel' in budget (parallel stands at the top, not in budget)"),
    ("budget:\n  dollar: 1", "job.yaml:8: unknown key 'dollar' in budget (did you mean 'dollars'?)"),
    ("budget: {dollars: 0}", "job.yaml:7: budget.dollars: 0 is no amount to spend"),
    ("budget: {dollars: -1}", "job.yaml:7: budget.dollars: -1 is not an amount of money"),
    ("budget: {dollars: 2 EUR}", "budget.dollars: '2 EUR' is not an amount of money (write $2.50 or 2.5)"),
    ("budget: {hours: 0}", "budget.hours: 0 is no duration"),
    ("budget: {hours: 3 weeks}", "budget.hours: '3 weeks' is not a duration"),
    ("budget: {trials: 1,000}", "unknown key '000' in budget (a comma ends a value between { and }: write 1000"),
    ("budget: {trials: '1,00'}", "budget.trials: wanted a whole number, got '1,00'"),
    ("budget: {trials: 1e-3}", "budget.trials: wanted a whole number, got 0.001"),
    ("budget: {trials: 0}", "budget.trials: 0 should be greater than or equal to 1"),
    ("budget: {trials: 1.5}", "budget.trials: wanted a whole number, got 1.5"),
    ("budget: {trials: true}", "budget.trials: wanted a whole number, got true"),
    ("budget: [1]", "budget: wanted a mapping, got [1]"),
    ("constraints: {deadline: 0}", "constraints.deadline: 0 is no duration (it must be above zero"),
    ("constraints: {deadline: 5 parsecs}", "constraints.deadline: '5 parsecs' is not a duration (write 90s, 45m"),
    ("constraints: {metrics: {ratio: {at_leest: 3}}}", "unknown key 'at_leest' in constraints.metrics.ratio (did you"),
    ("constraints: {metrics: {ratio: 3}}", "constraints.metrics.ratio: wanted a mapping, got 3"),
    ("constraints: {metrics: {ratio: '> 3'}}", "constraints.metrics.ratio: '> 3' is no bound (write '>= 2.5'"),
    ("constraints: {metrics: {ratio: '>= x'}}", "'>= x' is no bound"),
    ("constraints: {metrics: {r: {at_least: 3, at_most: 2}}}", "at_least 3 is above at_most 2 (no value keeps both)"),
    ("constraints: {metrics: {r: {}}}", "the bound has neither at_least nor at_most"),
    ("constraints: {metrics: {r: {at_least: .nan}}}", "nan is not a number"),
    ("objective: {minimise: cost, maximise: x}", "objective: the objective has both minimise and maximise"),
    ("objective: {}", "the objective has neither minimise nor maximise"),
    ("objective: {minimize: cost}", "unknown key 'minimize' in objective (did you mean 'minimise'?)"),
    ("objective: {minimise: 3}", "objective.minimise: wanted text, got 3"),
    ("objective: 3", "objective: wanted a mapping, got 3"),
    ("where: level <", "job.yaml:7: where: cannot read the expression 'level <'"),
    ("where:\n  - level < 3\n  - levle < 3", "job.yaml:9: where.1: the expression 'levle < 3' names 'levle'"),
    ("where: [__import__('os')]", "which is not allowed"),
    ("where: [codec.vcpu > 3]", "asks for a fact of 'codec', which is no instance"),
    ("where: {level: 3}", "where.0: wanted text, got {'level': 3}"),
    ("parallel: 0", "parallel: 0 should be greater than or equal to 1"),
    ("parallel: two", "parallel: wanted a whole number, got 'two'"),
    ("abort: yes", "abort: wanted true or false, got 'yes'"),
    ("seed: 1.5", "seed: wanted a whole number, got 1.5"),
    ("future_runs: 50\nstop: never", "job.yaml:7: future_runs: it says when further trials do not pay, and stop"),
    ("least_improvement: 1%\nstop: never", "least_improvement: it says when to stop, and stop: never goes on"),
    ("least_improvement: 100%", "least_improvement: '100%' is no share below one (write 1% or 0.01)"),
    ("value: $2", "value: '$2' is no price of time (write $2/h)"),
    ("value: $2/h", "value: it says what an hour of a run is worth, and this search does not minimise the run time"),
    ("future_runs: 0", "future_runs: 0 should be greater than 0"),
    ("interpret: python", "job.yaml:7: interpret.function is missing (path/to/file.py:function"),
    ("interpret:\n  - json_lines\n  - regex", "job.yaml:9: interpret.1.patterns is missing (One or more patterns"),
    ("catalogues: {csv: {}}", "job.yaml:7: catalogues.csv.path is missing (The CSV file)"),
    ("catalogues: {csv: {path: x.csv, use: csv}}", "job.yaml:7: unknown key 'use' in catalogues.csv (its name says"),
    ("deploy: {provisioner: libvirt}", "job.yaml:7: deploy.provisioner.image is missing (Disk image"),
    ("searcher: gpp", "job.yaml:7: searcher: there is no searcher named 'gpp' (did you mean 'gp'?)"),
    ("searcher:\n  use: random\n  speed: 3", "job.yaml:9: unknown key 'speed' in searcher"),
    ("searcher: {xi: 3}", "searcher.use is missing"),
    (
        "searcher: {use: paris, references: [1xc5.large]}",
        "job.yaml:7: searcher.references: wanted 2 values, got 1 (The",
    ),
    (
        "searcher: {use: paris, references: [a, b, c]}",
        "job.yaml:7: searcher.references: wanted 2 values, got 3 (The two",
    ),
    ("searcher: {use: paris, references: []}", "job.yaml:7: searcher.references: wanted 2 values, got 0 ("),
    ("searcher: [gp]", "searcher: wanted a mapping, got ['gp']"),
    ("interpret: [exit_code, regx]", "interpret.1: there is no interpreter named 'regx' (did you mean 'regex'?)"),
    ("interpret: {use: json_lines, optinal: true}", "unknown key 'optinal' in interpret (did you mean 'optional'?)"),
    ("deploy: {runner: mesos}", "deploy.runner: there is no runner named 'mesos' (installed: docker"),
    ("deploy: {billing: {granularity: 0}}", "deploy.billing.granularity: 0 is no duration"),
    ("deploy: {billing: {setup: -3}}", "deploy.billing.setup: -3 is not a duration"),
    ("deploy: {retries: -1}", "deploy.retries: -1 should be greater than or equal to 0"),
    ("deploy: {log_limit: 64}", "deploy.log_limit: 64 is not an amount of bytes (write 64MiB or 1GiB)"),
    ("deploy: {log_limit: 0B}", "'0B' is not an amount of bytes"),
    ("deploy: {log_limit: 3 furlongs}", "'3 furlongs' is not an amount of memory"),
    (
        "deploy:\n  hooks:\n    before_executin: x",
        "job.yaml:9: unknown key 'before_executin' in deploy.hooks (did you mean",
    ),
    ("deploy: {hooks: {on_error: [touch, x]}}", "deploy.hooks.on_error: ['touch', 'x'] may be one command or 2 hooks"),
    ("deploy: {hooks: {on_error: {timeout: 3}}}", "a hook needs either command or python"),
    ("deploy: {hooks: {on_error: {python: no colon}}}", "deploy.hooks.on_error.python"),
    ("offers: {vcpu: 8..4}", "offers.vcpu: the range '8..4' has its ends the wrong way round"),
    ("offers: {vcpu: ..}", "offers.vcpu: the range '..' has no bounds"),
    ("offers: {vcpu: many}", "offers.vcpu: 'many' is not a number of at least 0"),
    ("offers: {memory: 4 stones}", "offers.memory: '4 stones' is not an amount of memory"),
    ("offers: {price: cheap}", "offers.price: 'cheap' is not an amount of money"),
    ("offers: {limit: 0}", "offers.limit: 0 should be greater than or equal to 1"),
    ("offers: {spot: maybe}", "offers.spot"),
    ("offers: {cpu: 4}", "unknown key 'cpu' in offers (did you mean 'vcpu'?)"),
    ("select: closest", "select: there is no selector named 'closest'"),
]


@pytest.mark.parametrize(("added", "said"), WRONG)
def test_one_line_says_what_where_and_what_to_write(added: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(TEMPLATE + added + "\n", file="job.yaml", base=tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.line is not None


SPACES = [
    ("x: {type: integer, low: 3, high: 1}", "job.yaml:5: space.x: low 3 is above high 1 (swap them)"),
    ("x: {type: integer, low: 1}", "space.x.high is missing"),
    ("x: {type: integer, low: 1, high: 3, stepp: 2}", "unknown key 'stepp' in space.x (did you mean 'step'?)"),
    ("x: {type: integr, low: 1, high: 3}", "space.x: there is no type 'integr' (did you mean 'integer'?)"),
    ("x: {type: integer, low: 1.5, high: 3}", "space.x.low: wanted a whole number, got 1.5"),
    ("x: {type: float, low: 0, high: 1, log: true}", "space.x: a log scale needs low above 0, got 0"),
    ("x: {type: float, low: a, high: 1}", "space.x.low: 'a' is not a number"),
    ("x: 9..1", "space.x: low 9 is above high 1"),
    ("x: 0..9 log", "a log scale needs low above 0"),
    ("x: 0..1 step 0", "space.x: the step is 0 (it must be above 0)"),
    ("x: 0.0..1 step -0.1", "space.x: the step is -0.1 (it must be above 0)"),
    ("x: {low: 0, high: 1, step: -0.5}", "space.x.step: -0.5 should be greater than 0"),
    ("x: {low: 1000000, high: 2000000, step: 0.0000001}", "space.x: a step of 1e-07 is too fine"),
    ("nodes: 1..7 step 0.5", "is no range of whole numbers"),
    ("nodes: 1.5..7", "is no range of whole numbers"),
    ("x: 1-9", "space.x: '1-9' is neither a range nor a list (write a list [1, 3, 6]"),
    ("x:", "space.x: the parameter has no values"),
    ("x: []", "space.x: there is nothing in it"),
    ("x: [1, 1]", "space.x: the value 1 is listed twice"),
    ("x: [1, [2]]", "space.x.1: [2] is no value (values are numbers, text, true and false)"),
    ("x: [1, null]", "space.x.1: nothing is no value"),
    ("x: {when: y}", "space.x: the parameter has neither a type nor values"),
    ("block-size: [1]", "space.block-size: 'block-size' is no name for a parameter (write block_size)"),
    ("lambda: [1]", "'lambda' is no name for a parameter (letters, digits"),
    ("fraction: [1]", "'fraction' is no name for a parameter"),
    ("nodes: 0", "space.nodes: 0 should be greater than or equal to 1"),
    ("nodes: [1, 0]", "space.nodes.1: 0 should be greater than or equal to 1"),
    ("nodes: 4..1", "the range '4..1' makes no sense"),
    ("nodes: 1..8 log", "'1..8 log' is no number of machines"),
    ("nodes: {low: 3, high: 1}", "space.nodes: low 3 is above high 1"),
    ("nodes: {low: 3}", "the number of machines is missing"),
    ("nodes: {values: [1], high: 3}", "has both values and a range"),
    ("nodes: {type: integer, low: 1, high: 3}", "a parameter of this name is of type nodes, not integer"),
    ("a: {type: nodes, values: [1]}\n  nodes: [1]", "job.yaml:6: space: a and nodes both choose the nodes"),
    ("instance: {values: [a], types: [b]}", "values and types are the same thing"),
    ("instance: []", "the list of instance types is empty"),
    ("instance: {vcpus: 4}", "unknown key 'vcpus' in space.instance (did you mean 'vcpu'?)"),
    ("instance: {vcpu: 8..2}", "space.instance.vcpu: the range '8..2' has its ends the wrong way round"),
    ("x: {values: [1], when: y > 1}", "space.x.when: the expression 'y > 1' names 'y', which is no parameter"),
    ("x: {values: [1], when: z > 1}\n  z: [1, 2]", "a condition may name only parameters above its own"),
    (
        "z: [a, b]\n  x:\n    values: [1]\n    when: {z: c}",
        "job.yaml:8: space.x.when: z='c' is not in the space (wanted one of",
    ),
    ("x: {values: [1], when: {}}", "space.x.when: the condition is empty"),
    ("x: {values: [1], when: {z: {}}}", "the condition on z needs a value or a list of values"),
    ("x: {values: [1], when: 3}", "space.x.when: wanted text, got 3"),
]


@pytest.mark.parametrize(("space", "said"), SPACES)
def test_wrong_parameters(space: str, said: str, tmp_path: Path) -> None:
    text = f"name: demo\njob:\n  command: prog\nspace:\n  {space}\n"
    with pytest.raises(SpecError) as caught:
        parse_spec(text, file="job.yaml", base=tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.line is not None


JOBS = [
    ("{command: prog {{ levle }}}", "job.yaml:"),
    (
        "{command: 'prog {{ levle }}'}",
        "job.command: the template '{{ levle }}' names 'levle', which is no parameter (did",
    ),
    ("{command: [prog, '{{ level ']}", "job.command: cannot read the template '{{ level '"),
    ("{command: prog, env: {A: '{{ b }}'}}", "job.env.A: the template '{{ b }}' names 'b'"),
    ("{command: ''}", "job.command: the command is empty"),
    ("{command: []}", "job.command: the command is empty"),
    ("{command: 3}", "job.command: wanted a list, got 3"),
    ('{command: "prog \'a"}', "job.command: cannot split the command: no closing quotation"),
    ("{comand: prog}", "unknown key 'comand' in job (did you mean 'command'?) (and 1 more)"),
    ("{}", "job.command is missing"),
    ("{command: prog, fraction: 0}", "job.fraction: 0 should be greater than 0"),
    ("{command: prog, fraction: 1.5}", "job.fraction: 1.5 should be less than or equal to 1"),
    ("{command: prog, env: {A=B: 1}}", "'A=B' is no name for a variable (write A_B)"),
    ("{command: prog, env: {a b: 1}}", "'a b' is no name for a variable (write a_b)"),
    ("{command: prog, env: {'': 1}}", "'' is no name for a variable (write NAME)"),
    ("{command: prog, secrets: {A=: 'env:X'}}", "'A=' is no name for a variable (write A)"),
    ("{command: prog, load: {command: x, env: {A=: 1}}}", "'A=' is no name for a variable"),
    ("{command: prog, env: [A]}", "job.env: wanted a mapping, got ['A']"),
    ("{command: prog, env: {A: [1]}}", "job.env.A: wanted text, got [1]"),
    ("{command: prog, parameters: {level: 3}}", "job.parameters.level: this name is taken (choose another)"),
    ("{command: prog, parameters: {nodes: 3}}", "job.parameters.nodes: this name is taken"),
    ("{command: prog, workdir: 3}", "job.workdir: wanted text, got 3"),
    ("prog", "job: wanted a mapping, got 'prog'"),
]


@pytest.mark.parametrize(("job", "said"), JOBS)
def test_wrong_jobs(job: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"name: demo\njob: {job}\nspace: {{level: [1]}}\n", file="job.yaml", base=tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["''", "'12'", "../x", "a/b", "'-x'", "é", "x" * 101])
def test_names_that_would_not_do_as_a_folder_or_for_a_study(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"job.yaml:1: name: .* is no name for a job"):
        parse_spec(f"name: {name}\njob: {{command: x}}\nspace: {{level: [1]}}\n", file="job.yaml", base=tmp_path)


def test_the_first_of_several_errors_is_shown(tmp_path: Path) -> None:
    text = "name: x\njob: {command: a}\nspace: {level: 1..9}\nsed: 1\nparallel: 0\nabort: 3\n"
    with pytest.raises(SpecError) as caught:
        parse_spec(text, file="job.yaml", base=tmp_path)
    assert str(caught.value) == "job.yaml:4: unknown key 'sed' (did you mean 'seed'?) (and 2 more)"
    with pytest.raises(SpecError, match=r"parallel: .* 1 \(and 1 more\)"):
        parse_spec(text.replace("sed: 1\n", ""), file="job.yaml", base=tmp_path)
    with pytest.raises(SpecError, match=r"job.yaml:3: space is missing \(What may be chosen, by name\)"):
        parse_spec("name: x\njob: {command: a}\nspace:\n", file="job.yaml", base=tmp_path)
