"""Several tasks as one job: fewer jobs wait in queues, and the transfers between the tasks of a job go away."""
