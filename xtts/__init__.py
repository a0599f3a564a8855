"""Trains XTTS voice-cloning text-to-speech on TensorFlow 2.4 to 2.21, from one TOML recipe."""

__version__ = "0.1.0"


class XttsError(Exception):
    """What a user can mend: the message says what and how, and is printed without a traceback."""

    status = 1  # of the process that it ends


class Mistake(XttsError):
    """What was typed, or a recipe, must be changed."""

    status = 2
