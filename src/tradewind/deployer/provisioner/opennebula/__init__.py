"""The opennebula provisioner: virtual machines of an OpenNebula cloud."""
