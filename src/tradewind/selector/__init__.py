"""Floor 2: selectors turn a configuration into a priced offer."""
