"""The sizes of the model presets, their parameter counts and the cost of a step.

Parameters are counted by formula, without building a model, so that a plan is made before TensorFlow starts. The names
of the parts are those in a checkpoint: `gpt` (with its conditioning encoder and perceiver), `codec`, `speaker`,
`decoder`.
"""

from math import gcd
from typing import Any, Dict, NamedTuple, Tuple

import attrs

LATENTS = 32  # output of the perceiver, for a reference of any length
FRAMES_PER_CODE = 4  # the codec downsamples by 2 twice


@attrs.frozen
class GptSize:
    """The autoregressive transformer, with its conditioning encoder and perceiver."""

    layers: int
    width: int
    heads: int
    conditioning_blocks: int = 6
    perceiver_layers: int = 2
    perceiver_heads: int = 8
    perceiver_head_width: int = 64
    text_positions: int = 402  # tokens; two more for [START] and [STOP]
    audio_positions: int = 605  # codes; three more for start, stop and one spare
    prompt_positions: int = 70

    @property
    def max_text_tokens(self) -> int:
        """The longest text, in tokens without [START] and [STOP]."""
        return self.text_positions

    @property
    def max_recording_frames(self) -> int:
        """The longest recording, in mel frames, whose codes, three stop codes, start and stop have positions."""
        return FRAMES_PER_CODE * (self.audio_positions - 2)

    def weights(self, text_tokens: int, audio_tokens: int, n_mels: int) -> int:
        """The number of trainable parameters."""
        width, inner = self.width, self.perceiver_heads * self.perceiver_head_width
        norm = 2 * width
        block = 2 * norm + _dense(width, 3 * width) + _dense(width, width)
        block += _dense(width, 4 * width) + _dense(4 * width, width)
        reference = _dense(n_mels, width)
        reference += self.conditioning_blocks * (norm + _dense(width, 3 * width) + _dense(width, width))
        hidden = width * 4 * 2 // 3  # width of the perceiver's GEGLU
        resampler = LATENTS * width + width  # the latents, and gamma of the last norm
        attention = width * inner + width * 2 * inner + inner * width  # no biases
        resampler += self.perceiver_layers * (attention + _dense(width, 2 * hidden) + _dense(hidden, width))
        embeddings = (text_tokens + self.text_positions + 2 + audio_tokens + self.audio_positions + 3) * width
        heads = _dense(width, text_tokens) + _dense(width, audio_tokens)
        return self.layers * block + 2 * norm + reference + resampler + embeddings + heads


@attrs.frozen
class CodecSize:
    """The discrete VAE: four mel frames to a code, and back."""

    hidden: int
    code_width: int
    codes: int
    blocks: int = 3
    kernel: int = 3

    @property
    def audio_tokens(self) -> int:
        return self.codes + 2  # start and stop

    def weights(self, n_mels: int) -> int:
        hidden, wide = self.hidden, 2 * self.hidden
        block = 2 * _conv(wide, wide, self.kernel) + _conv(wide, wide, 1)
        encoder = _conv(n_mels, hidden, self.kernel) + _conv(hidden, wide, self.kernel)
        encoder += _conv(wide, self.code_width, 1)
        decoder = _conv(self.code_width, wide, 1) + _conv(wide, wide, self.kernel) + _conv(wide, hidden, self.kernel)
        decoder += _conv(hidden, n_mels, 1)
        return encoder + decoder + 2 * self.blocks * block

    def state(self) -> int:
        """The number of non-trainable parameters: the codebook, its running sums and counts."""
        return 2 * self.code_width * self.codes + self.codes


@attrs.frozen
class SpeakerSize:
    """The ResNet speaker encoder."""

    blocks: Tuple[int, ...]  # of each stage
    filters: Tuple[int, ...]  # of each stage
    width: int  # of the speaker embedding
    mels: int = 64
    attention: int = 128

    def weights(self) -> int:
        return self._count(norm=2)

    def state(self) -> int:
        """The number of running means and variances."""
        return self._count(norm=4) - self.weights()

    def _count(self, norm: int) -> int:
        before = self.filters[0]
        total = 9 * before + before + norm * before  # 3 x 3 from one channel
        for stage, (blocks, filters) in enumerate(zip(self.blocks, self.filters)):
            squeezed = filters // 8
            shortcut = stage > 0 or before != filters
            total += (before * filters + norm * filters) if shortcut else 0
            total += 9 * before * filters + (blocks - 1) * 9 * filters * filters
            total += blocks * (9 * filters * filters + 2 * norm * filters)
            total += blocks * (_dense(filters, squeezed) + _dense(squeezed, filters))
            before = filters
        channels = before * self.mels // 8  # three strided stages halve the mels
        total += _dense(channels, self.attention) + norm * self.attention + _dense(self.attention, channels)
        return total + _dense(2 * channels, self.width)


@attrs.frozen
class DecoderSize:
    """HiFi-GAN: the transformer's latents and a speaker embedding to a wave."""

    width: int  # before the first upsampling, halved by each
    upsampling: Tuple[int, ...] = (8, 8, 2, 2)
    kernels: Tuple[int, ...] = (16, 16, 4, 4)
    block_kernels: Tuple[int, ...] = (3, 7, 11)
    dilations: Tuple[int, ...] = (1, 3, 5)

    def weights(self, latent_width: int, speaker_width: int) -> int:
        total = _conv(latent_width, self.width, 7) + _conv(speaker_width, self.width, 1)
        width = self.width
        for kernel in self.kernels:
            half = width // 2
            total += _conv(width, half, kernel) + width  # transposed: weight norm has a scale per input channel
            total += _conv(speaker_width, half, 1)
            total += sum(2 * len(self.dilations) * (_conv(half, half, size) + half) for size in self.block_kernels)
            width = half
        return total + width * 7


@attrs.frozen
class ModelSize:
    """The sizes of the four parts of a model."""

    gpt: GptSize
    codec: CodecSize
    speaker: SpeakerSize
    decoder: DecoderSize


SIZES: Dict[str, ModelSize] = {
    "tiny": ModelSize(  # for a laptop without a GPU
        GptSize(layers=4, width=256, heads=4, conditioning_blocks=2, perceiver_layers=1, perceiver_heads=4),
        CodecSize(hidden=128, code_width=128, codes=1024),  # hidden=64 with 256 codes loses half the words
        SpeakerSize(blocks=(1, 1, 1, 1), filters=(8, 16, 32, 64), width=128),
        DecoderSize(width=64),
    ),
    "small": ModelSize(
        GptSize(layers=8, width=384, heads=6, conditioning_blocks=3, perceiver_heads=6),
        CodecSize(hidden=192, code_width=192, codes=1024),
        SpeakerSize(blocks=(1, 2, 2, 1), filters=(16, 32, 64, 128), width=256),
        DecoderSize(width=128),
    ),
    "normal": ModelSize(
        GptSize(layers=12, width=512, heads=8, conditioning_blocks=4),
        CodecSize(hidden=256, code_width=256, codes=1024),
        SpeakerSize(blocks=(2, 3, 3, 2), filters=(32, 64, 128, 256), width=512),
        DecoderSize(width=256),
    ),
    "big": ModelSize(
        GptSize(layers=18, width=768, heads=12),
        CodecSize(hidden=384, code_width=512, codes=1024),
        SpeakerSize(blocks=(3, 4, 6, 3), filters=(32, 64, 128, 256), width=512),
        DecoderSize(width=384),
    ),
    "v2": ModelSize(  # the published XTTS-v2
        GptSize(layers=30, width=1024, heads=16),
        CodecSize(hidden=512, code_width=512, codes=1024),
        SpeakerSize(blocks=(3, 4, 6, 3), filters=(32, 64, 128, 256), width=512),
        DecoderSize(width=512),
    ),
}


class ParameterCount(NamedTuple):
    """The parameters of one part of a model."""

    weights: int  # trainable
    state: int  # running averages

    @property
    def total(self) -> int:
        return self.weights + self.state


def count_parameters(size: ModelSize, text_tokens: int, n_mels: int = 80) -> Dict[str, ParameterCount]:
    """The parameters of each part; `text_tokens` is the size of the tokenizer."""
    return {
        "gpt": ParameterCount(size.gpt.weights(text_tokens, size.codec.audio_tokens, n_mels), 0),
        "codec": ParameterCount(size.codec.weights(n_mels), size.codec.state()),
        "speaker": ParameterCount(size.speaker.weights(), size.speaker.state()),
        "decoder": ParameterCount(size.decoder.weights(size.gpt.width, size.speaker.width), 0),
    }


class StepCost(NamedTuple):
    """The cost of a sequence of length L, `per_token` L + `per_pair` L^2 multiply-adds in the forward pass."""

    per_token: int
    per_pair: int

    def of(self, length: Any) -> Any:
        """The cost of a length, or of an array of lengths (int64)."""
        return length * (self.per_token + self.per_pair * length)

    def reduced(self) -> "StepCost":
        """The same proportions in the smallest integers, so that sums over a corpus do not overflow."""
        unit = gcd(self.per_token, self.per_pair) or 1
        return StepCost(self.per_token // unit, self.per_pair // unit)


def step_cost(gpt: GptSize) -> StepCost:
    """Each layer has 12 width^2 weights per token, and two products of length width per pair of tokens."""
    return StepCost(per_token=12 * gpt.width**2 * gpt.layers, per_pair=2 * gpt.width * gpt.layers)


def _dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _conv(inputs: int, outputs: int, kernel: int) -> int:
    return inputs * outputs * kernel + outputs
