"""Load a folder with coqui-tts and say sentences: `coqui_program.py ABOUT.json`, run by a Python that has it.

ABOUT.json names the folder, the sizes that its config.json cannot state, the voice (conditioning latents and a speaker
embedding), a wave to encode, the texts, and the .npz to write: the ids, codes and wave of each text.
"""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from TTS.tts.configs.xtts_config import XttsConfig
from TTS.tts.layers.xtts import hifigan_decoder
from TTS.tts.layers.xtts.trainer import gpt_trainer
from TTS.tts.models import xtts


def shrink(size):
    """Build the decoder, the speaker encoder and the codec in other sizes than the published ones."""
    speaker, codec = size["speaker"], size["codec"]
    hifigan_decoder.ResNetSpeakerEncoder = functools.partial(
        hifigan_decoder.ResNetSpeakerEncoder, layers=speaker["blocks"], num_filters=speaker["filters"]
    )
    xtts.HifiDecoder = functools.partial(xtts.HifiDecoder, upsample_initial_channel_decoder=size["decoder"]["width"])
    whole, own = gpt_trainer.DiscreteVAE, {"codebook_dim": codec["code_width"], "hidden_dim": codec["hidden"]}
    gpt_trainer.DiscreteVAE = lambda **options: whole(**{**options, **own})


def load(folder):
    config = XttsConfig()
    config.load_json(str(folder / "config.json"))
    model = xtts.Xtts.init_from_config(config)
    model.load_checkpoint(config, checkpoint_dir=str(folder), eval=True, strict=True)
    return model


def load_trainer(folder):
    """The public trainer with all the files that it needs, each loaded strictly."""
    config = gpt_trainer.GPTTrainerConfig()
    config.load_json(str(folder / "config.json"))
    files = {"tokenizer_file": "vocab.json", "mel_norm_file": "mel_stats.pth", "dvae_checkpoint": "dvae.pth"}
    files["xtts_checkpoint"] = "model.pth"
    for name, file in files.items():
        setattr(config.model_args, name, str(folder / file))
    trainer = gpt_trainer.GPTTrainer(config)
    trainer.load_checkpoint(config, str(folder / "model.pth"), eval=False, strict=True)
    trainer.dvae.load_state_dict(torch.load(folder / "dvae.pth", weights_only=True), strict=True)
    return trainer.eval()


@torch.no_grad()
def main(about):
    folder, size = Path(about["folder"]), about["size"]
    shrink(size)
    model, trainer = load(folder), load_trainer(folder)
    voice = [torch.tensor(np.load(about["voice"])[name]) for name in ("latents", "embedding")]
    generate, found = model.gpt.generate, {}
    for number, text in enumerate(about["texts"]):
        codes = []

        def remember(*arguments, codes=codes, **options):
            codes.append(generate(*arguments, **options))
            return codes[-1]

        model.gpt.generate = remember
        said = model.inference(text, "en", *voice, do_sample=False, num_beams=1, repetition_penalty=5.0)
        found[f"{number}/ids"] = np.array(model.tokenizer.encode(text, lang="en"))
        found[f"{number}/codes"] = codes[0][0].numpy()
        found[f"{number}/wave"] = np.asarray(said["wav"])
    wave = torch.tensor(np.load(about["voice"])["wave"])[None, None]
    found["encoded"] = trainer.dvae.get_codebook_indices(trainer.torch_mel_spectrogram_dvae(wave))[0].numpy()
    if model.speaker_manager is not None:
        for name, one in model.speaker_manager.speakers.items():
            found.update({f"speaker/{name}/{part}": tensor.numpy() for part, tensor in one.items()})
    np.savez(about["out"], **found)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
