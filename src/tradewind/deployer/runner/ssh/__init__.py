"""The ssh runner: jobs on hosts that are reached by SSH."""
