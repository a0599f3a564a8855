"""Errors that are shown to the user as a sentence, without a traceback."""


class XttsError(Exception):
    """An error that the user can fix: the message says what is wrong and what to do."""

    status = 1  # exit status of the process


class UsageError(XttsError):
    """A command line or a recipe that has to be changed."""

    status = 2
