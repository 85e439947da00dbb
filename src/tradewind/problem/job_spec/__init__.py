"""The job YAML: its values and keys, the specification that is made of them, and its JSON schema."""
