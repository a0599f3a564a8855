"""Trains XTTS voice-cloning text-to-speech on TensorFlow 2.4 to 2.21, from one TOML recipe."""

__version__ = "0.1.0"
