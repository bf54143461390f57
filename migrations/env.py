"""Alembic runs this. The connection, its transaction and its lock are `app.db.migrate`'s."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
