"""Audio files and mel spectrograms, in NumPy."""
