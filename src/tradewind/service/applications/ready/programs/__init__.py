"""Programs of the ready applications: each is a file of its own, for any Python 3, without packages."""
