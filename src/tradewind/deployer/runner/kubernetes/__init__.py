"""The kubernetes runner: jobs of a Kubernetes cluster."""
