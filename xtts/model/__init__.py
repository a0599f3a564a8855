"""The networks: GPT, codec, waveform decoder and speaker encoder."""
