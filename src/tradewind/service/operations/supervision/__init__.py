"""Child processes of the server: how they are started, restarted, configured and measured."""
