import json
import math
from pathlib import Path

import numpy as np
import pytest

from xtts.planning.sizes import (
    SIZES,
    CodecSize,
    DecoderSize,
    GptSize,
    ModelSize,
    SpeakerSize,
    StepCost,
    count_parameters,
    step_cost,
)
from xtts.recipe.schema import ModelSection

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sizes.json").read_text())
STATE = ("running_", "codebook")  # updated by averages, not gradients
NO_PARAMETER = ("torch_spec", "discrete_loss")  # features and bookkeeping


def golden_size():
    gpt, dvae, decoder, speaker = (GOLDEN["config"][part] for part in ("gpt", "dvae", "decoder", "speaker"))
    return ModelSize(
        GptSize(
            gpt["layers"],
            gpt["model_dim"],
            gpt["heads"],
            text_positions=gpt["max_text_tokens"],
            audio_positions=gpt["max_mel_tokens"],
        ),
        CodecSize(dvae["hidden_dim"], dvae["codebook_dim"], dvae["num_tokens"], dvae["num_resnet_blocks"]),
        SpeakerSize(tuple(speaker["layers"]), tuple(speaker["num_filters"]), speaker["proj_dim"], speaker["input_dim"]),
        DecoderSize(decoder["upsample_initial_channel_decoder"]),
    )


def tensors(part, wanted):
    return sum(
        math.prod(shape)
        for name, shape in GOLDEN["shapes"][part].items()
        if not any(word in name for word in NO_PARAMETER) and any(word in name for word in STATE) == wanted
    )


@pytest.mark.parametrize("part", ["gpt", "codec", "speaker", "decoder"])
def test_parameter_counts_match_a_stored_model(part):
    """Each part's computed weights and state equal those of a stored model of the same sizes."""
    count = count_parameters(golden_size(), GOLDEN["config"]["gpt"]["number_text_tokens"])[part]
    assert count.weights == tensors(part, wanted=False)
    assert count.state == tensors(part, wanted=True)


def test_every_size_a_recipe_can_name_is_a_preset():
    """The table has exactly the names that `model.size` allows."""
    assert set(SIZES) == set(ModelSection.__annotations__["size"].__args__)


def test_presets_grow_from_tiny_to_v2():
    """Each preset has at least as many parameters in every part as the one before, and more in the GPT."""
    counts = [count_parameters(size, 100) for size in SIZES.values()]
    for smaller, larger in zip(counts, counts[1:]):
        assert smaller["gpt"].total < larger["gpt"].total
        assert all(smaller[part].total <= larger[part].total for part in smaller)


def test_v2_has_the_published_sizes():
    """v2 with its 6,681 text tokens has the published model's sizes, and its embeddings have the published shapes."""
    size = SIZES["v2"]
    assert (size.gpt.layers, size.gpt.width, size.gpt.heads) == (30, 1024, 16)
    assert (size.codec.hidden, size.codec.code_width, size.codec.codes) == (512, 512, 1024)
    more = count_parameters(size, 6682)["gpt"].total - count_parameters(size, 6681)["gpt"].total
    assert more == 2 * 1024 + 1  # a row of the embedding, a row of the head, a bias


def test_presets_can_be_built():
    """Widths are divisible by the number of heads, and as often by 2 as decoder and speaker encoder require."""
    for size in SIZES.values():
        assert size.gpt.width % size.gpt.heads == 0
        assert size.decoder.width % 2 ** len(size.decoder.upsampling) == 0
        assert all(filters % 8 == 0 for filters in size.speaker.filters)
        assert len(size.speaker.blocks) == len(size.speaker.filters)


def test_cost_is_linear_plus_quadratic_and_keeps_its_ratios():
    """The work of a sequence is counted layer by layer, and reducing the fraction changes no ratio."""
    work = step_cost(SIZES["tiny"].gpt)
    one_layer = 12 * 256**2 * 100 + 2 * 256 * 100**2
    assert work.of(100) == 4 * one_layer
    lengths = np.array([10, 100, 1000])
    assert np.array_equal(work.of(lengths) * work.reduced().of(10), work.reduced().of(lengths) * work.of(10))
    assert work.reduced() == StepCost(6 * 256, 1)
    assert StepCost(7, 0).reduced() == StepCost(1, 0)
