"""Server-sent events: what happens to requests, and what their programs print, while it happens."""
