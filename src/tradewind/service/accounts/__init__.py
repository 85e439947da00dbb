"""User accounts: users, passwords, tokens, sessions, and the audit log."""
