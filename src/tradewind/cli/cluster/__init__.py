"""The commands of shared clusters: start one, submit searches to it, watch and steer them."""
