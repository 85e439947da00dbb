"""Floor 2: interpreters read metrics out of what a run left behind."""
