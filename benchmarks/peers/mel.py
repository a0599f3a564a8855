"""Times mels, in a process of its own: for each line that it reads, the seconds of a mel of 6.6 s (mean of COUNT).

    python mel.py xtts|librosa|coqui

Each computes the mel of XTTS's codec, from the same wave, on one thread, and first writes its shape and mean.
"""

import json
import sys
import time

import numpy as np

RATE, SECONDS, COUNT = 22050, 6.6, 20
FFT, HOP, MELS, HIGHEST = 1024, 256, 80, 8000


def sound():
    at = np.arange(int(SECONDS * RATE)) / RATE
    noise = np.random.RandomState(0).standard_normal(len(at))
    return (0.2 * np.sin(2 * np.pi * 150 * at) + 0.01 * noise).astype(np.float32)


def ours(wave):
    from xtts.audio.mel import CODEC, mel

    return lambda: np.log(np.maximum(mel(wave, CODEC), 1e-5)), np.__version__


def of_librosa(wave):
    import librosa

    options = {"n_fft": FFT, "hop_length": HOP, "n_mels": MELS, "fmin": 0, "fmax": HIGHEST, "pad_mode": "reflect"}

    def run():
        found = librosa.feature.melspectrogram(y=wave, sr=RATE, htk=True, norm="slaney", power=2.0, **options)
        return np.log(np.maximum(found, 1e-5)).T

    return run, librosa.__version__


def of_coqui(wave):
    """The mel function of coqui-tts's codec, with mel norms of 1."""
    from importlib.metadata import version

    import torch
    from TTS.tts.layers.xtts.dvae import dvae_wav_to_mel

    torch.set_num_threads(1)
    batch, ones = torch.tensor(wave)[None], torch.ones(MELS)

    def run():
        with torch.inference_mode():
            return dvae_wav_to_mel(batch, mel_norms=ones, device="cpu")[0].numpy().T

    return run, version("coqui-tts")


def main(way):
    run, release = {"xtts": ours, "librosa": of_librosa, "coqui": of_coqui}[way](sound())
    mel = run()
    print(json.dumps({"shape": mel.shape, "mean": float(mel.mean()), "version": release}), flush=True)
    for _ in sys.stdin:
        start, worked = time.perf_counter(), time.process_time()
        for _ in range(COUNT):
            run()
        seconds, work = (time.perf_counter() - start) / COUNT, (time.process_time() - worked) / COUNT
        print(json.dumps({"seconds": seconds, "processor": work}), flush=True)
    print(json.dumps({}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
