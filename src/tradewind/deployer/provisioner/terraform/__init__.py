"""The terraform provisioner: machines that Terraform or OpenTofu makes."""
