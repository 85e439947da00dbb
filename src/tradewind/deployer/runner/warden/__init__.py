"""The warden: a small process that starts, watches and ends jobs on its machine."""
