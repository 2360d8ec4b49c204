"""Errors a user can fix, each one message with the file or key, what was found and the remedy."""


class WorkloadError(ValueError):
    """A workload's name, options or rows are not usable as given."""


class MissingDataError(WorkloadError):
    """The data of a workload is not on this machine and cannot be fetched from here."""
