"""The names and shapes of a model's published tensors, and the sizes of a model from its tensors.

Names and shapes are those of a published `model.pth`; the codec, published as a file of its own, has the prefix `dvae.`
that trainers give it. `describe_tensors` derives each size by a majority vote of the shapes that depend on it, so that
one broken tensor is reported as broken, and not all the others.
"""

import re
from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import attrs
import numpy as np

from xtts.audio.mel import SPEAKER, filterbank, window
from xtts.planning.sizes import LATENTS, SIZES, CodecSize, DecoderSize, GptSize, ModelSize, SpeakerSize

Shape = Tuple[int, ...]
Named = Iterator[Tuple[str, Shape]]

PREFIXES = {  # of the parts
    "gpt": "gpt.",
    "decoder": "hifigan_decoder.waveform_decoder.",
    "speaker": "hifigan_decoder.speaker_encoder.",
    "codec": "dvae.",
}
MEL_STATS = "mel_stats"
SCALE, DIRECTION = ".parametrizations.weight.original0", ".parametrizations.weight.original1"  # of weight normalisation
OLDER = {".weight_g": SCALE, ".weight_v": DIRECTION}  # the older spelling
NORMED = re.compile(re.escape(PREFIXES["decoder"]) + r"(ups\.\d+|resblocks\.\d+\.convs[12]\.\d+)\.weight")
# What checkpoints contain besides the model: copies for inference, buffers of older libraries, the trainer's features.
IGNORED = re.compile(
    r"gpt\.gpt_inference\.|gpt\.gpt\.wte\.weight$|gpt\.gpt\.h\.\d+\.attn\.(masked_)?bias$"
    r"|torch_mel_spectrogram_(style_encoder|dvae)\."
)
LOSS_WINDOW = 100  # steps over which the published codec counts its codes
HEAD_WIDTH = 64  # of published models; it does not show in shapes


@attrs.frozen
class ModelDescription:
    """A model as its tensors describe it."""

    size: ModelSize
    text_tokens: int
    n_mels: int = 80
    parts: Tuple[str, ...] = tuple(PREFIXES)  # that it has
    is_published: bool = True  # or trained from published weights; False: trained from scratch


def tensor_shapes(model: ModelDescription) -> Dict[str, Shape]:
    """The name and shape of every tensor that the model must have."""
    size = model.size
    audio_tokens = size.codec.audio_tokens
    makers = {
        "gpt": lambda: _gpt(size.gpt, model.text_tokens, audio_tokens, model.n_mels),
        "decoder": lambda: _decoder(size.decoder, size.gpt.width, size.speaker.width),
        "speaker": lambda: _speaker(size.speaker),
        "codec": lambda: _codec(size.codec, model.n_mels),
    }
    found: Dict[str, Shape] = {MEL_STATS: (model.n_mels,)}
    for part in model.parts:
        found.update((PREFIXES[part] + name, shape) for name, shape in makers[part]())
    return found


def constants(model: ModelDescription) -> Dict[str, np.ndarray]:
    """Tensors that are not weights but that the public implementation expects, with their initial values."""
    found: Dict[str, np.ndarray] = {}
    if "speaker" in model.parts:
        prefix = PREFIXES["speaker"]
        spec = attrs.evolve(SPEAKER, n_mels=model.size.speaker.mels)
        found[prefix + "torch_spec.0.filter"] = np.array([[[-spec.preemphasis, 1.0]]], np.float32)
        found[prefix + "torch_spec.1.mel_scale.fb"] = np.asarray(filterbank(spec), np.float32)
        found[prefix + "torch_spec.1.spectrogram.window"] = np.asarray(window(spec), np.float32)
        for name, _ in _speaker(model.size.speaker):
            if name.endswith("running_mean"):
                found[prefix + name.replace("running_mean", "num_batches_tracked")] = np.zeros((), np.int64)
    if "codec" in model.parts:
        prefix = PREFIXES["codec"] + "discrete_loss.accumulator"
        found[prefix] = np.zeros((LOSS_WINDOW, model.size.codec.codes), np.float32)
        found[prefix + "_filled"] = found[prefix + "_index"] = np.zeros(1, np.int64)
    return found


def published_name(name: str) -> Optional[str]:
    """The name in the current spelling, without a trainer's prefix; None: does not belong to the model."""
    name = name[len("xtts.") :] if name.startswith("xtts.") else name
    for old, new in OLDER.items():
        if name.endswith(old):
            name = name[: -len(old)] + new
    return None if IGNORED.match(name) else name


def layout_problems(model: ModelDescription, tensors: Mapping[str, np.ndarray]) -> List[str]:
    """Every tensor that is missing, misshapen or surplus, with its shape and the expected one."""
    wanted = tensor_shapes(model)
    for name in [name for name in wanted if name.endswith(DIRECTION)]:
        stem = name[: -len(DIRECTION)]
        if (
            stem + ".weight" in tensors and name not in tensors and stem + SCALE not in tensors
        ):  # weight normalisation was folded
            wanted[stem + ".weight"] = wanted.pop(name)
            del wanted[stem + SCALE]
    allowed = {name: value.shape for name, value in constants(model).items()}
    found = []
    for part, prefix in PREFIXES.items():  # one line for a part that is missing as a whole
        names = [name for name in wanted if name.startswith(prefix)]
        if names and not any(name in tensors for name in names):
            found.append(f"{prefix}*: all {len(names):,} tensors of the {part} are missing")
            for name in names:
                del wanted[name]
    for name, shape in wanted.items():
        if name not in tensors:
            found.append(f"{name}: missing, expected {list(shape)}")
        elif tensors[name].shape != shape:
            found.append(f"{name}: has {list(tensors[name].shape)}, expected {list(shape)}")
        elif tensors[name].dtype.kind != "f":
            found.append(f"{name}: has {tensors[name].dtype} numbers, expected float32")
    for name, tensor in tensors.items():
        if name in allowed and tensor.shape != allowed[name]:
            found.append(f"{name}: has {list(tensor.shape)}, expected {list(allowed[name])}")
        elif name not in wanted and name not in allowed:
            found.append(f"{name}: surplus, has {list(tensor.shape)}")
    return found


def describe_tensors(tensors: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> ModelDescription:
    """The description of the model that the tensors belong to. `settings`: the `model_args` of a Coqui config, if any.

    The number of heads does not show in shapes: without settings a head is 64 wide, as in every published model.
    """
    shapes = _Shapes(tensors)
    n_mels = shapes.size("gpt.conditioning_encoder.init.weight 1", "mel_stats 0", default=80)
    parts = tuple(part for part, prefix in PREFIXES.items() if shapes.has(prefix))
    text_tokens = shapes.size("gpt.text_embedding.weight 0", "gpt.text_head.weight 0", "gpt.text_head.bias 0")
    size = ModelSize(
        _describe_gpt(shapes, settings), _describe_codec(shapes), _describe_speaker(shapes), _describe_decoder(shapes)
    )
    return ModelDescription(size, text_tokens, n_mels, parts)


class _Shapes:
    """The shapes of tensors, from which sizes are derived."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self.shapes = {name: tensor.shape for name, tensor in tensors.items()}

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.shapes)

    def size(self, *dimensions: str, default: int = 1) -> int:
        """A majority vote of dimensions, each given as "name axis" or "name axis subtrahend"."""
        votes: List[int] = []
        for dimension in dimensions:
            name, axis, *subtrahends = dimension.split()
            shape = self.shapes.get(name, ())
            if len(shape) > int(axis):
                votes.append(shape[int(axis)] - sum(map(int, subtrahends)))
        return max(Counter(votes).most_common(1)[0][0], 1) if votes else default

    def count(self, prefix: str) -> int:
        """How many numbered parts there are: up to the last number, unless far more are missing than present."""
        numbers = {
            int(match.group(1))
            for match in (re.match(re.escape(prefix) + r"(\d{1,6})\.", name) for name in self.shapes)
            if match
        }
        return min(max(numbers) + 1, 2 * len(numbers) + 8) if numbers else 0


def _describe_gpt(shapes: _Shapes, settings: Mapping[str, Any]) -> GptSize:
    blocks = "gpt.gpt.h."
    width = shapes.size(
        "gpt.final_norm.weight 0",
        "gpt.gpt.ln_f.weight 0",
        "gpt.text_embedding.weight 1",
        "gpt.mel_embedding.weight 1",
        "gpt.mel_head.weight 1",
        default=SIZES["v2"].gpt.width,
    )
    heads = _positive_integer(settings, "gpt_n_heads")
    prompt = _positive_integer(settings, "gpt_max_prompt_tokens")
    perceiver = "gpt.conditioning_perceiver.layers."
    inner = shapes.size(f"{perceiver}0.0.to_q.weight 0", f"{perceiver}0.0.to_out.weight 1", default=8 * HEAD_WIDTH)
    defaults = SIZES["v2"].gpt
    return GptSize(
        layers=shapes.count(blocks),
        width=width,
        heads=heads or max(1, width // HEAD_WIDTH),
        conditioning_blocks=shapes.count("gpt.conditioning_encoder.attn."),
        perceiver_layers=shapes.count(perceiver),
        perceiver_heads=max(1, inner // HEAD_WIDTH),
        perceiver_head_width=HEAD_WIDTH,
        text_positions=shapes.size("gpt.text_pos_embedding.emb.weight 0 2", default=defaults.text_positions),
        audio_positions=shapes.size("gpt.mel_pos_embedding.emb.weight 0 3", default=defaults.audio_positions),
        prompt_positions=prompt or defaults.prompt_positions,
    )


def _describe_codec(shapes: _Shapes) -> CodecSize:
    """From the codec's own tensors; without a codec: the published size, with as many codes as the transformer has."""
    default = SIZES["v2"].codec
    codes = shapes.size(
        "dvae.codebook.cluster_size 0",
        "dvae.codebook.embed 1",
        "dvae.codebook.embed_avg 1",
        "gpt.mel_embedding.weight 0 2",
        "gpt.mel_head.weight 0 2",
        "gpt.mel_head.bias 0 2",
    )
    return CodecSize(
        hidden=shapes.size("dvae.encoder.0.0.weight 0", "dvae.encoder.0.0.bias 0", default=default.hidden),
        code_width=shapes.size("dvae.codebook.embed 0", "dvae.codebook.embed_avg 0", default=default.code_width),
        codes=codes,
        blocks=max(0, shapes.count("dvae.encoder.") - 3) if shapes.has("dvae.") else default.blocks,
        kernel=shapes.size("dvae.encoder.0.0.weight 2", "dvae.encoder.1.0.weight 2", default=default.kernel),
    )


def _describe_speaker(shapes: _Shapes) -> SpeakerSize:
    default, prefix = SIZES["v2"].speaker, PREFIXES["speaker"]
    if not shapes.has(prefix):
        return default
    stages = range(1, 1 + len(default.filters))
    filters = tuple(
        shapes.size(f"{prefix}layer{stage}.0.conv1.weight 0", f"{prefix}layer{stage}.0.bn1.weight 0")
        for stage in stages
    )
    channels = shapes.size(f"{prefix}attention.3.weight 0", f"{prefix}attention.3.bias 0")
    return SpeakerSize(
        blocks=tuple(shapes.count(f"{prefix}layer{stage}.") for stage in stages),
        filters=filters,
        width=shapes.size(f"{prefix}fc.weight 0", f"{prefix}fc.bias 0"),
        mels=max(8, channels * 8 // filters[-1]),
        attention=shapes.size(f"{prefix}attention.0.weight 0", f"{prefix}attention.0.bias 0"),
    )


def _describe_decoder(shapes: _Shapes) -> DecoderSize:
    default, prefix = SIZES["v2"].decoder, PREFIXES["decoder"]
    if not shapes.has(prefix):
        return default
    ups = shapes.count(f"{prefix}ups.")
    per_up = shapes.count(f"{prefix}resblocks.") // max(ups, 1)
    dilations = shapes.count(f"{prefix}resblocks.0.convs1.")

    def kernel(default: int, *layers: str) -> int:
        """The kernel size of most of the layers; `default` where all of them are missing."""
        ends = (DIRECTION, ".weight")
        return shapes.size(*(f"{prefix}{layer}{end} 2" for layer in layers for end in ends), default=default)

    usual = (*default.kernels, *([4] * ups))
    kernels = tuple(kernel(usual[up], f"ups.{up}") for up in range(ups))
    blocks = [[f"resblocks.{up * per_up + place}.convs1.0" for up in range(ups)] for place in range(per_up)]
    return DecoderSize(
        width=shapes.size(f"{prefix}conv_pre.weight 0", f"{prefix}conv_pre.bias 0", f"{prefix}cond_layer.weight 0"),
        upsampling=tuple(max(1, kernel // 2) for kernel in kernels),  # as in every published HiFi-GAN
        kernels=kernels,
        block_kernels=tuple(kernel(3, *alike) for alike in blocks),
        dilations=tuple(1 + 2 * place for place in range(dilations)),  # 1, 3, 5: they do not show in shapes
    )


def _positive_integer(settings: Mapping[str, Any], key: str) -> Optional[int]:
    value = settings.get(key)
    return value if type(value) is int and value > 0 else None


def _gpt(size: GptSize, text_tokens: int, audio_tokens: int, n_mels: int) -> Named:
    width, inner = size.width, size.perceiver_heads * size.perceiver_head_width
    yield from _affine("conditioning_encoder.init", width, n_mels, 1)
    for block in range(size.conditioning_blocks):
        path = f"conditioning_encoder.attn.{block}."
        yield from _norm(path + "norm", width)
        yield from _affine(path + "qkv", 3 * width, width, 1)
        yield from _affine(path + "proj_out", width, width, 1)
    if size.perceiver_layers:  # XTTS v1 has none
        yield "conditioning_perceiver.latents", (LATENTS, width)
        yield "conditioning_perceiver.norm.gamma", (width,)
    hidden = width * 4 * 2 // 3  # of the GEGLU
    for layer in range(size.perceiver_layers):
        path = f"conditioning_perceiver.layers.{layer}."
        yield path + "0.to_q.weight", (inner, width)
        yield path + "0.to_kv.weight", (2 * inner, width)
        yield path + "0.to_out.weight", (width, inner)
        yield from _affine(path + "1.0", 2 * hidden, width)
        yield from _affine(path + "1.2", width, hidden)
    for layer in range(size.layers):
        path = f"gpt.h.{layer}."
        yield from _norm(path + "ln_1", width)
        yield from _norm(path + "ln_2", width)
        for name, inputs, outputs in (
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, 4 * width),
            ("mlp.c_proj", 4 * width, width),
        ):
            yield f"{path}{name}.weight", (inputs, outputs)  # as in GPT-2
            yield f"{path}{name}.bias", (outputs,)
    yield from _norm("gpt.ln_f", width)
    yield from _norm("final_norm", width)
    for kind, tokens, positions in (
        ("text", text_tokens, size.text_positions + 2),
        ("mel", audio_tokens, size.audio_positions + 3),
    ):
        yield f"{kind}_embedding.weight", (tokens, width)
        yield f"{kind}_pos_embedding.emb.weight", (positions, width)
        yield from _affine(f"{kind}_head", tokens, width)


def _codec(size: CodecSize, n_mels: int) -> Named:
    hidden, wide, kernel = size.hidden, 2 * size.hidden, size.kernel
    yield from _affine("encoder.0.0", hidden, n_mels, kernel)
    yield from _affine("encoder.1.0", wide, hidden, kernel)
    yield from _affine("decoder.0", wide, size.code_width, 1)
    for block in range(size.blocks):
        for path in (f"encoder.{2 + block}.net.", f"decoder.{1 + block}.net."):
            yield from _affine(path + "0", wide, wide, kernel)
            yield from _affine(path + "2", wide, wide, kernel)
            yield from _affine(path + "4", wide, wide, 1)
    yield from _affine(f"encoder.{2 + size.blocks}", size.code_width, wide, 1)
    yield from _affine(f"decoder.{1 + size.blocks}.0.conv", wide, wide, kernel)
    yield from _affine(f"decoder.{2 + size.blocks}.0.conv", hidden, wide, kernel)
    yield from _affine(f"decoder.{3 + size.blocks}", n_mels, hidden, 1)
    yield "codebook.embed", (size.code_width, size.codes)
    yield "codebook.embed_avg", (size.code_width, size.codes)
    yield "codebook.cluster_size", (size.codes,)


def _speaker(size: SpeakerSize) -> Named:
    before = size.filters[0]
    yield from _affine("conv1", before, 1, 3, 3)
    yield from _batch_norm("bn1", before)
    for stage, (blocks, filters) in enumerate(zip(size.blocks, size.filters), 1):
        for block in range(blocks):
            path = f"layer{stage}.{block}."
            yield path + "conv1.weight", (filters, before, 3, 3)
            yield path + "conv2.weight", (filters, filters, 3, 3)
            yield from _batch_norm(path + "bn1", filters)
            yield from _batch_norm(path + "bn2", filters)
            yield from _affine(path + "se.fc.0", filters // 8, filters)
            yield from _affine(path + "se.fc.2", filters, filters // 8)
            if block == 0 and stage > 1:
                yield path + "downsample.0.weight", (filters, before, 1, 1)
                yield from _batch_norm(path + "downsample.1", filters)
            before = filters
    channels = before * size.mels // 8  # three strided stages halve the mels
    yield from _affine("attention.0", size.attention, channels, 1)
    yield from _batch_norm("attention.2", size.attention)
    yield from _affine("attention.3", channels, size.attention, 1)
    yield from _affine("fc", size.width, 2 * channels)


def _decoder(size: DecoderSize, latent_width: int, speaker_width: int) -> Named:
    yield from _affine("conv_pre", size.width, latent_width, 7)
    yield from _affine("cond_layer", size.width, speaker_width, 1)
    width = size.width
    for up, kernel in enumerate(size.kernels):
        half = width // 2
        yield from _weight_normed(f"ups.{up}", (width, half, kernel), half)  # transposed: [in, out, kernel]
        yield from _affine(f"conds.{up}", half, speaker_width, 1)
        for place, block_kernel in enumerate(size.block_kernels, up * len(size.block_kernels)):
            for dilation in range(len(size.dilations)):
                for convs in ("convs1", "convs2"):
                    yield from _weight_normed(f"resblocks.{place}.{convs}.{dilation}", (half, half, block_kernel), half)
        width = half
    yield "conv_post.weight", (1, width, 7)


def _affine(path: str, outputs: int, *inputs: int) -> Named:
    yield f"{path}.weight", (outputs, *inputs)
    yield f"{path}.bias", (outputs,)


def _norm(path: str, width: int) -> Named:
    yield f"{path}.weight", (width,)
    yield f"{path}.bias", (width,)


def _batch_norm(path: str, width: int) -> Named:
    for name in ("weight", "bias", "running_mean", "running_var"):
        yield f"{path}.{name}", (width,)


def _weight_normed(path: str, shape: Shape, outputs: int) -> Named:
    """A convolution with weight normalisation: a scale for each entry of the first axis, and a direction."""
    yield path + SCALE, (shape[0],) + (1,) * (len(shape) - 1)
    yield path + DIRECTION, shape
    yield f"{path}.bias", (outputs,)


def list_mismatches(what: str, wrong: List[str]) -> str:
    """An error message with a line for each mismatch."""
    return "\n".join([f"{what}; nothing was loaded. {len(wrong):,} do not fit:", *(f"  {line}" for line in wrong)])
