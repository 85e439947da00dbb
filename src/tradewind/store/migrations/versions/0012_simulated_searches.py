"""Searches of clusters whose runs nobody pays, because they are simulated or looked up."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_SIMULATE = {"simulated", "replay", "workflow"}
"""The runners of that time that ran nothing for real."""


def upgrade() -> None:
    """Add the column; of the searches that have begun, their studies say it."""
    op.add_column("cluster_jobs", sa.Column("simulated", sa.Boolean, nullable=False, server_default=sa.false()))
    jobs = sa.table("cluster_jobs", sa.column("study_id"), sa.column("simulated"))
    studies = sa.table("studies", sa.column("id"), sa.column("spec"))
    found = sa.select(studies.c.id, studies.c.spec).where(studies.c.id.in_(sa.select(jobs.c.study_id)))
    connection = op.get_bind()
    for study, spec in connection.execute(found).all():
        if _runner(json.loads(spec)) in _SIMULATE:
            connection.execute(sa.update(jobs).where(jobs.c.study_id == study).values(simulated=True))


def _runner(spec: dict[str, Any]) -> str:
    job = spec.get("job")
    goal = job if isinstance(job, dict) and "space" in job else spec
    deploy = goal.get("deploy") or {}
    runner = deploy.get("runner") if isinstance(deploy, dict) else None
    return str((runner.get("use") or runner.get("name")) if isinstance(runner, dict) else runner or "")
