"""The input pipeline: batches on the right device, ahead of time."""
