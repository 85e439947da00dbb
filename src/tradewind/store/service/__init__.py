"""The tables of the service: users, requests and their claims, results, applications, notices and the audit log."""
