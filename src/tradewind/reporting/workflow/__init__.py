"""Pictures of workflows, schedules and learning: HTML pages and PNG files."""
