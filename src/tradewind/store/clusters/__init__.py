"""Shared clusters: tenants, their searches, who runs a cluster, and what tenants have spent."""
