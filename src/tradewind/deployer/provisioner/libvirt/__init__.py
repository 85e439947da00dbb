"""The libvirt provisioner: virtual clusters on hosts with libvirt."""
