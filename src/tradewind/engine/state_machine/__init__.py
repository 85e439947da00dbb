"""The state machine of a search: events in, instructions out, no input and output."""
