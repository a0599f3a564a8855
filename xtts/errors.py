"""Errors that are shown to the user as a sentence, without a traceback."""


class XttsError(Exception):
    """What a user can mend: the message says what and how, and is printed without a traceback."""

    status = 1  # of the process that it ends


class UsageError(XttsError):
    """What was typed, or a recipe, must be changed."""

    status = 2
