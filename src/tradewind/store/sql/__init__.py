"""The database itself: its address, connections, transactions, tables, errors and copies."""
