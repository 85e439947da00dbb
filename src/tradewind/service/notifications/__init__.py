"""Notices: e-mails and webhooks that tell users what became of their requests."""
