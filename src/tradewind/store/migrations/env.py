"""Alembic's entry: it runs the migrations on the connection and in the transaction that the store opened."""

from __future__ import annotations

from alembic import context

from tradewind.store.sql.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
