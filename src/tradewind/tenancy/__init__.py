"""Many searches of many tenants on one cluster."""
