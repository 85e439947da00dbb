"""``tradewind workflow``: look at a workflow, plan it, simulate it, learn, run it, and choose its machines."""

from __future__ import annotations

from tradewind.cli.common import command_group
from tradewind.cli.workflow.advise import advise
from tradewind.cli.workflow.convert import convert
from tradewind.cli.workflow.info import info
from tradewind.cli.workflow.learn import learn
from tradewind.cli.workflow.plan import plan
from tradewind.cli.workflow.run import run
from tradewind.cli.workflow.simulate import simulate

workflow_app = command_group("workflow", "Plan, simulate and run scientific workflows on several machines.")

workflow_app.command()(info)
workflow_app.command()(plan)
workflow_app.command()(simulate)
workflow_app.command()(learn)
workflow_app.command()(advise)
workflow_app.command()(run)
workflow_app.command()(convert)
