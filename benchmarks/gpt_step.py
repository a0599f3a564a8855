"""Times training steps of the transformer, in a process of its own: one step for each line it reads.

    python gpt_step.py coqui|eager|graph|xla RATE_OF_DROPOUT THREADS

runs the PyPI package coqui-tts, or this one in three ways, at equal sizes. It writes a JSON line when it is ready, one
after each step, and one with its peak memory at the end of its input. Each step is forward, backward and AdamW, on the
same batch of full rows.
"""

import json
import os
import sys
import time
from pathlib import Path

from peak import peak_bytes

LAYERS, WIDTH, HEADS = 4, 256, 4
BATCH, TEXT, CODES, REFERENCE = 8, 200, 200, 400  # rows, tokens, codes including three stops, mel frames
TEXT_TOKENS, CODE_TOKENS = 6681, 1024
RATE, DECAY, FIRST, SECOND, EPSILON = 5e-6, 0.01, 0.9, 0.96, 1e-8  # of AdamW


def batch():
    import numpy as np

    random = np.random.default_rng(0)
    text = random.integers(2, 261, [BATCH, TEXT])
    codes = random.integers(0, CODE_TOKENS, [BATCH, CODES - 3])
    return text, codes, random.standard_normal([BATCH, REFERENCE, 80]).astype(np.float32)


def coqui(dropout, threads):
    """The training step of coqui-tts, as in its trainer."""
    import torch
    from TTS.tts.layers.xtts.gpt import GPT

    torch.set_num_threads(threads)
    memory = resident()
    torch.manual_seed(0)
    gpt = GPT(
        layers=LAYERS,
        model_dim=WIDTH,
        heads=HEADS,
        max_text_tokens=402,
        max_mel_tokens=605,
        number_text_tokens=TEXT_TOKENS,
        num_audio_tokens=CODE_TOKENS + 2,
        start_audio_token=CODE_TOKENS,
        stop_audio_token=CODE_TOKENS + 1,
        use_perceiver_resampler=True,
    )
    gpt.train()
    for module in gpt.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    optimizer = torch.optim.AdamW(gpt.parameters(), RATE, (FIRST, SECOND), EPSILON, DECAY)
    text, codes, reference = batch()
    inputs = [
        torch.tensor(text),
        torch.full([BATCH], TEXT),
        torch.nn.functional.pad(torch.tensor(codes), (0, 3)),
        torch.full([BATCH], (CODES - 3) * 1024),
        torch.tensor(reference.transpose(0, 2, 1))[:, None],
    ]

    def step():
        optimizer.zero_grad()
        text_loss, code_loss, _ = gpt(*inputs)
        (0.01 * text_loss + code_loss).backward()
        optimizer.step()
        return float(code_loss.detach())

    return step, memory, lambda: None, {"torch": torch.__version__}


def ours(way, dropout, threads):
    """The training step of this package: "eager", "graph" or "xla"."""
    import numpy as np
    import tensorflow as tf

    sys.path.insert(0, str(Path(__file__).parent.parent))
    from xtts import compat
    from xtts.model.gpt import Gpt, Tokens
    from xtts.planning.shapes import joint_length
    from xtts.planning.sizes import GptSize as Size

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    memory = resident()
    tokens = Tokens(TEXT_TOKENS, CODE_TOKENS + 2)
    gpt = Gpt(Size(layers=LAYERS, width=WIDTH, heads=HEADS), tokens, np.random.default_rng(0))
    weights = [weight.variable for weight in gpt.weights().values()]
    moments = [(tf.Variable(tf.zeros_like(weight)), tf.Variable(tf.zeros_like(weight))) for weight in weights]
    count = tf.Variable(0.0)
    text, codes, reference = batch()
    joint = int(joint_length(TEXT, 4 * (CODES - 3)))

    def step(text, text_lengths, codes, code_lengths, reference, seed):
        with tf.GradientTape() as tape:
            losses, _ = gpt.losses(text, text_lengths, codes, code_lengths, reference, joint, dropout, seed)
        count.assign_add(1.0)
        powers = FIRST**count, SECOND**count
        for weight, gradient, (mean, square) in zip(weights, tape.gradient(losses.total, weights), moments):
            weight.assign(weight * (1 - RATE * DECAY))
            handles = {
                "var": weight.handle,
                "m": mean.handle,
                "v": square.handle,
                "grad": tf.convert_to_tensor(gradient),
            }
            rates = {"lr": RATE, "beta1": FIRST, "beta2": SECOND, "epsilon": EPSILON}
            tf.raw_ops.ResourceApplyAdam(**handles, **rates, beta1_power=powers[0], beta2_power=powers[1])
        return losses.codes

    compiled = step if way == "eager" else compat.compiled(step, jit_compile=way == "xla")
    inputs = [
        tf.constant(text, tf.int32),
        tf.fill([BATCH], TEXT),
        tf.constant(codes, tf.int32),
        tf.fill([BATCH], CODES - 3),
        tf.constant(reference),
    ]
    steps = iter(range(2**31 - 1))

    def run():
        return float(compiled(*inputs, tf.constant([7, next(steps)])))

    return run, memory, lambda: getattr(compiled, "traces", None), {"tensorflow": tf.__version__}


def resident():
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(way, dropout, threads):
    made = coqui(dropout, threads) if way == "coqui" else ours(way, dropout, threads)
    step, imported, traces, versions = made
    start = time.perf_counter()
    loss = step()
    print(json.dumps({"first": time.perf_counter() - start, "loss": loss, **versions}), flush=True)
    for _ in sys.stdin:
        start, worked = time.perf_counter(), time.process_time()
        loss = step()
        seconds, work = time.perf_counter() - start, time.process_time() - worked
        print(json.dumps({"seconds": seconds, "processor": work, "loss": loss}), flush=True)
    print(json.dumps({"peak": peak_bytes(), "imported": imported, "traces": traces()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
