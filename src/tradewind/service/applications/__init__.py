"""Applications: a job with a form, registered once and run by people who know neither clouds nor job files."""
