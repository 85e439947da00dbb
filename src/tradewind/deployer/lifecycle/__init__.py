"""Takes runs from their launch to their end: stages, hooks, cost, orphans."""
