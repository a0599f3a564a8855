"""Times speech synthesis, in a process of its own: one sentence for each line it reads.

    python speak.py weights FILE
    python speak.py coqui|uncached|graph|xla FILE THREADS greedy|sampled

The first writes random weights under their published names. The second loads them into the PyPI package coqui-tts or
into this one, and speaks the same text with the same conditioning latents: it writes a JSON line when it is ready, one
after each sentence, and one with its traces at the end of its input. `uncached` has no key-value cache: it processes
the whole sequence again for every code.
"""

import json
import sys
import time
from pathlib import Path

LAYERS, WIDTH, HEADS = 4, 256, 4
TEXT, CODES, UNCACHED_CODES = 60, 200, 8  # text tokens, and codes to generate
TEXT_TOKENS, AUDIO_TOKENS = 6681, 1026
TEMPERATURE, TOP_K, TOP_P, PENALTY = 0.75, 50, 0.85, 10.0  # XTTS-v2's own


def inputs():
    """A text without special tokens, [1, T], and conditioning latents, [1, 32, width]."""
    import numpy as np

    random = np.random.default_rng(0)
    return random.integers(2, 261, [1, TEXT]), random.standard_normal([1, 32, WIDTH]).astype(np.float32)


def gpt_of_ours():
    import numpy as np

    sys.path.insert(0, str(Path(__file__).parent.parent))
    from xtts.model.gpt import Gpt, Tokens
    from xtts.planning.sizes import GptSize as Size

    size = Size(layers=LAYERS, width=WIDTH, heads=HEADS)
    return Gpt(size, Tokens(TEXT_TOKENS, AUDIO_TOKENS), np.random.default_rng(0))


def write_weights(path):
    """Write random weights in the published layout; the stop is never the most likely code."""
    import numpy as np
    from safetensors.numpy import save_file

    gpt = gpt_of_ours()
    gpt.mel_head.bias.assign(np.where(np.arange(AUDIO_TOKENS) < AUDIO_TOKENS - 2, 0.0, -100.0).astype(np.float32))
    tensors = {}
    for name, weight in gpt.weights().items():
        value = weight.variable.numpy()
        value = value if weight.axes is None else value.transpose(np.argsort(weight.axes))
        tensors[name] = np.ascontiguousarray(value if "norm" in name or "bias" in name else 3 * value)
    save_file(tensors, path)


def coqui(path, threads, is_sampled):
    """Generation by coqui-tts, as its XTTS calls it."""
    import torch
    from safetensors.torch import load_file
    from TTS.tts.layers.xtts.gpt import GPT

    torch.set_num_threads(threads)
    gpt = GPT(
        layers=LAYERS,
        model_dim=WIDTH,
        heads=HEADS,
        max_text_tokens=402,
        max_mel_tokens=605,
        number_text_tokens=TEXT_TOKENS,
        num_audio_tokens=AUDIO_TOKENS,
        start_audio_token=AUDIO_TOKENS - 2,
        stop_audio_token=AUDIO_TOKENS - 1,
        use_perceiver_resampler=True,
    )
    gpt.load_state_dict(load_file(path))
    gpt.init_gpt_for_inference(kv_cache=True)
    gpt.eval()
    text, style = (torch.tensor(array) for array in inputs())
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": CODES}
    if is_sampled:
        options.update(do_sample=True, temperature=TEMPERATURE, top_k=TOP_K, top_p=TOP_P, repetition_penalty=PENALTY)

    def speak():
        with torch.inference_mode():
            return gpt.generate(style, text, **options)[0].tolist()

    return speak, lambda: None, {"torch": torch.__version__}


def ours(way, path, threads, is_sampled):
    """Generation by this package."""
    import numpy as np
    import tensorflow as tf
    from safetensors.numpy import load_file

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    gpt = gpt_of_ours()
    from xtts import compat
    from xtts.model.generation import generate
    from xtts.model.sampling import sampling

    tensors = load_file(path)
    for name, weight in gpt.weights().items():
        weight.variable.assign(tensors[name] if weight.axes is None else np.transpose(tensors[name], weight.axes))
    text, style = inputs()
    text, lengths, style = tf.constant(text, tf.int32), tf.constant([TEXT]), tf.constant(style)
    settings, penalty = sampling(TEMPERATURE, TOP_K, TOP_P), tf.constant(PENALTY if is_sampled else 1.0)

    def cached(text, lengths, style, penalty, settings):
        options = {"pick": settings} if is_sampled else {}
        return generate(gpt, text, lengths, style, CODES, penalty, **options).codes

    def again(text, lengths, style, codes, length):
        latents = gpt.latents(text, lengths, codes, length, style)
        return tf.argmax(gpt.mel_head(latents), axis=-1, output_type=tf.int32)

    def uncached():
        codes = np.zeros([1, CODES], np.int32)
        for place in range(UNCACHED_CODES):
            best = compiled(text, lengths, style, tf.constant(codes), tf.constant([CODES]))
            codes[0, place] = best[0, place]
        return codes[0, :UNCACHED_CODES].tolist()

    compiled = compat.compiled(again if way == "uncached" else cached, autograph=False, jit_compile=way == "xla")

    def speak():
        return compiled(text, lengths, style, penalty, settings).numpy()[0].tolist()

    return uncached if way == "uncached" else speak, lambda: compiled.compilations, {"tensorflow": tf.__version__}


def main(way, path, threads="2", picking="greedy"):
    if way == "weights":
        write_weights(path)
        return
    is_sampled = picking == "sampled"
    made = coqui(path, int(threads), is_sampled) if way == "coqui" else ours(way, path, int(threads), is_sampled)
    speak, traces, versions = made
    start = time.perf_counter()
    codes = speak()
    print(json.dumps({"first": time.perf_counter() - start, "codes": codes, **versions}), flush=True)
    for _ in sys.stdin:
        start, worked = time.perf_counter(), time.process_time()
        count = len(speak())
        seconds, work = time.perf_counter() - start, time.process_time() - worked
        figures = {"seconds": seconds, "processor": work, "codes": count, "traces": traces()}
        print(json.dumps(figures), flush=True)
    print(json.dumps({"traces": traces()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
