"""The docker runner: jobs in containers of Docker or Podman."""
