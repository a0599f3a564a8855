"""The `python` that runs the commands of the docs: `python -m xtts ...` as typed, but shortened.

Model sizes are replaced by one smaller than tiny, training takes a fiftieth of the steps in batches of two, demo
corpora are less than a minute long, and no speech recogniser is used. All else is as in the docs. Processes are forked
from one that has imported TensorFlow without using it, which saves the seconds of the import.
"""

import json
import multiprocessing
import os
import re
import sys
from collections import OrderedDict
from importlib.util import find_spec

import attrs
import numpy as np
from small import SMALL

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["xtts.training.run", "xtts.inference.synthesizer"])
SIZE = attrs.evolve(SMALL, gpt=attrs.evolve(SMALL.gpt, perceiver_head_width=64))  # not found in a checkpoint's shapes
FIFTIETH = 50
MINUTES = "0.6"
TRAINED = """train.steps=2 codec.steps=2 train.batch_size=2 codec.batch_size=2 train.gradient_accumulation_steps=1
    train.warmup_steps=0 devices.model_start_delay=0 train.save_every=2 data.shape_count=1 data.workers=1"""
SHORT = {"run": TRAINED, "cluster": TRAINED, "plan": ""}
EVERY = f"demo.minutes={MINUTES} demo.voices=2"


def shortened(arguments):
    """The arguments of `python -m xtts`, with shortening flags before those typed, which therefore take precedence."""
    verb = arguments[0]
    if verb == "corpus":
        return [MINUTES if before == "--minutes" else word for before, word in zip([None, *arguments], arguments)]
    if verb == "evaluate":
        return [*arguments, "--recogniser", "none"]
    if verb not in SHORT:
        return list(arguments)
    steps = re.compile(r"train\.steps=(\d+)")
    typed = [steps.sub(lambda found: f"train.steps={int(found.group(1)) // FIFTIETH}", word) for word in arguments[2:]]
    short = [word for setting in f"{SHORT[verb]} {EVERY}".split() for word in ("--set", setting)]
    return [*arguments[:2], *short, *typed]


def publish(folder):
    """model.pth, dvae.pth, mel_stats.pth, vocab.json, config.json and speakers_xtts.pth, of the smallest size."""
    from safetensors.numpy import load_file
    from speakers import vocabulary, write_model
    from torch_files import save

    from xtts.text.tokenizer import BPETokenizer

    vocab = vocabulary(folder / "vocab.json")
    write_model(folder / "made", BPETokenizer.load(vocab), ("gpt", "speaker", "decoder", "codec"), size=SIZE)
    tensors = load_file(folder / "made" / "model.safetensors")
    codec = OrderedDict((name[len("dvae.") :], tensor) for name, tensor in tensors.items() if name.startswith("dvae."))
    rest = OrderedDict((name, tensor) for name, tensor in tensors.items() if not name.startswith("dvae."))
    config = {"model_args": {"gpt_n_heads": SIZE.gpt.heads}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save({"model": rest, "config": config}, folder / "model.pth")
    save(codec, folder / "dvae.pth")
    save(rest["mel_stats"], folder / "mel_stats.pth")
    latents, speaker = np.zeros((1, 32, SIZE.gpt.width)), np.zeros((1, SIZE.speaker.width, 1))
    voice = {"gpt_cond_latent": latents.astype(np.float32), "speaker_embedding": speaker.astype(np.float32)}
    save({"Ann": voice}, folder / "speakers_xtts.pth")


def call(arguments, cwd, log):
    """Run `python -m xtts ARGUMENTS` in a subprocess and return its exit status. Its output goes to the file `log`."""
    return _forked(_main, list(arguments), cwd, log)


def execute(code, cwd, log):
    """Run `python` with a program and return its exit status. Its output goes to the file `log`."""
    return _forked(exec, code, cwd, log)


def _forked(what, argument, cwd, log):
    process = FORKS.Process(target=_within, args=(what, argument, str(cwd), str(log)))
    process.start()
    process.join()
    return process.exitcode


def _within(what, argument, cwd, log):
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.chdir(cwd)
    what(argument, {"__name__": "__main__"}) if what is exec else what(argument)


def _main(arguments):
    from xtts.commands import main
    from xtts.planning.sizes import SIZES

    if arguments[0] != "plan":
        SIZES.update(dict.fromkeys(SIZES, SIZE))
    sys.argv = ["xtts", *arguments]
    sys.modules["__main__"].__spec__ = find_spec("xtts.__main__")  # because workers are started by this name
    sys.exit(main.main(shortened(arguments)))
