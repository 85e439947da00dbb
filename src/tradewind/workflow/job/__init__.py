"""A workflow as a job: one trial of a search plans it on its machines and runs it as a whole."""
