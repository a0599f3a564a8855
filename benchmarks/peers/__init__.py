"""Compare this package with its peers: coqui-tts and librosa. The result is a table with the date and the machine."""
