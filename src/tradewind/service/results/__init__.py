"""Where the results of requests go: folders of the users' own, and those that the administrator offers."""
