"""Published checkpoints in and out. Nothing in a file is executed."""
