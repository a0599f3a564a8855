"""Batches from tf.data service."""
