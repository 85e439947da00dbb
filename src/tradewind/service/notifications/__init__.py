"""Notices: e-mails and webhooks that report the progress of requests to their users."""
