"""The htcondor runner: jobs of an HTCondor pool."""
