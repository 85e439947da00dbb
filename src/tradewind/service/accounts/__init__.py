"""Who may do what: users, passwords, tokens, sessions, and the audit log."""
