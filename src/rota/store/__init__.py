"""The only package that knows SQL: tables, statements, transactions, migrations, wake-ups."""
