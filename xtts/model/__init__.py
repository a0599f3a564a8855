"""The networks: batches come in, codes, latents, voices and waves go out."""
