"""Errors that are shown to the user as a sentence, without a traceback."""


class XttsError(Exception):
    """A problem that the user can fix. Its message names the thing, the place and the remedy."""

    status = 1  # the exit status of the command line


class UsageError(XttsError):
    """A mistake in what was typed, or in a recipe."""

    status = 2
