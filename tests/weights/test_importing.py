"""Checkpoints are imported and exported under their published names, bit for bit."""

import json
import os
import struct
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file, save_file
from torch_files import archive, modules, pickled, save

from xtts.planning.sizes import SIZES, count_parameters
from xtts.weights import assignment, exporting, importing, layout, model_folder, safetensors_file
from xtts.weights.safetensors_file import WeightsError

GOLDEN = Path(__file__).parents[1] / "golden"
HEADS = 4  # of the golden model
SCALE, DIRECTION = layout.SCALE, layout.DIRECTION


@pytest.fixture(scope="module")
def golden():
    """A small model's tensors as `model.pth` names them, without its codec; and the codec's."""
    found = {f"gpt.{name}": tensor for name, tensor in load_file(GOLDEN / "gpt.weights.safetensors").items()}
    for part in ("decoder", "speaker"):
        tensors = load_file(GOLDEN / f"{part}.weights.safetensors")
        found.update((f"hifigan_decoder.{name}", tensor) for name, tensor in tensors.items())
    found["mel_stats"] = np.linspace(-1, 1, 80, dtype=np.float32)
    return found, load_file(GOLDEN / "dvae.weights.safetensors")


@pytest.fixture
def files(golden, tmp_path):
    """The same as files: a `model.pth` with the config that Coqui pickles into it, and a `dvae.pth`."""
    model, dvae = golden
    path = checkpoint(tmp_path / "model.pth", model)
    return path, save(OrderedDict(dvae), tmp_path / "dvae.pth"), tmp_path / "out"


def checkpoint(path, model, **more):
    return save({"model": OrderedDict(model), "config": {"model_args": {"gpt_n_heads": HEADS}}, **more}, path)


def same(found, expected):
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert found[name].tobytes() == np.ascontiguousarray(tensor).tobytes(), name


def whole(golden):
    return {**golden[0], **{f"dvae.{name}": tensor for name, tensor in golden[1].items()}}


def refusal(*arguments, **options):
    """The lines of the WeightsError that an import raises."""
    with pytest.raises(WeightsError) as error:
        importing.import_checkpoint(*arguments, **options)
    return str(error.value).splitlines()


# Import and export


def test_an_import_keeps_every_bit(files, golden):
    """Names, layouts and values are the published ones, including counters and tables."""
    model, dvae, out = files
    imported = importing.import_checkpoint(model, out, dvae)
    same(load_file(out / "model.safetensors"), whole(golden))
    assert sorted(path.name for path in out.iterdir()) == ["model.json", "model.safetensors", "speaking.json"]
    assert imported.tensors == len(whole(golden))
    assert "Coqui Public Model License" in imported.text()
    assert "non-commercial" in imported.text()


def test_sizes_are_derived_from_the_shapes(files):
    """The golden model's sizes follow from its tensors, and its heads from the config."""
    model, dvae, out = files
    found = importing.import_checkpoint(model, out, dvae).model
    gpt, codec, speaker, decoder = found.size.gpt, found.size.codec, found.size.speaker, found.size.decoder
    assert (gpt.layers, gpt.width, gpt.heads, gpt.text_positions, gpt.audio_positions) == (2, 64, HEADS, 22, 32)
    assert (gpt.conditioning_blocks, gpt.perceiver_layers, gpt.perceiver_heads, gpt.prompt_positions) == (6, 2, 8, 70)
    assert (codec.hidden, codec.code_width, codec.codes, codec.blocks, codec.kernel) == (32, 16, 96, 3, 3)
    assert (speaker.blocks, speaker.filters, speaker.width) == ((1, 2, 1, 1), (8, 8, 16, 16), 512)
    assert (decoder.width, decoder.upsampling, decoder.kernels) == (32, (8, 8, 2, 2), (16, 16, 4, 4))
    assert (decoder.block_kernels, decoder.dilations) == ((3, 7, 11), (1, 3, 5))
    assert (found.text_tokens, found.n_mels) == (50, 80)
    assert model_folder.read_model_folder(out)[0] == found


def test_a_round_trip_is_bit_identical(files, tmp_path):
    """After import, export and import the second folder equals the first."""
    model, dvae, out = files
    importing.import_checkpoint(model, out, dvae)
    exported = exporting.export_checkpoint(out, tmp_path / "voice.safetensors")
    assert [path.name for path in exported] == ["voice.safetensors", "voice.dvae.safetensors"]
    again = tmp_path / "again"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_args": {"gpt_n_heads": HEADS}}))
    importing.import_checkpoint(exported[0], again, exported[1], config=config)
    assert (again / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()
    assert (again / "model.json").read_bytes() == (out / "model.json").read_bytes()


def test_an_export_has_the_public_names(files, golden, tmp_path):
    """Everything the public implementation needs has its name, and the codec is in its own file."""
    model, dvae, out = files
    importing.import_checkpoint(model, out, dvae)
    first, second = exporting.export_checkpoint(out, tmp_path / "voice.safetensors")
    same(load_file(first), golden[0])
    same(load_file(second), golden[1])


def test_a_model_trained_from_nothing_stays_one(files, tmp_path):
    """Exported weights say so, and the import reads it: such a model does not speak as published ones do."""
    model, dvae, out = files
    imported = importing.import_checkpoint(model, out, dvae)
    assert imported.model.is_published
    tensors = model_folder.read_model_folder(out)[1]
    for parts in (layout.PREFIXES, ("gpt", "codec")):
        prefixes = (layout.MEL_STATS, *(layout.PREFIXES[part] for part in parts))
        own = {name: tensor for name, tensor in tensors.items() if name.startswith(prefixes)}
        folder = tmp_path / f"own-{len(parts)}"
        description = attrs.evolve(imported.model, parts=tuple(parts), is_published=False)
        model_folder.write_model_folder(folder, description, own)
        exported = exporting.export_checkpoint(folder, tmp_path / f"{folder.name}.safetensors")
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"model_args": {"gpt_n_heads": HEADS}}))
        again = importing.import_checkpoint(exported[0], tmp_path / f"again-{len(parts)}", exported[1], config=config)
        assert (again.model.parts, again.model.is_published) == (tuple(parts), False)
        assert (again.model.size.gpt, again.model.size.codec) == (description.size.gpt, description.size.codec)


def test_an_export_includes_tensors_that_are_not_weights(files, golden, tmp_path):
    """Counters, windows and filters that our models do not keep are computed for the public implementation."""
    model, dvae, out = files
    imported = importing.import_checkpoint(model, out, dvae)
    made = layout.constants(imported.model)
    bare = {name: tensor for name, tensor in whole(golden).items() if name not in made}
    assert len(bare) == len(whole(golden)) - len(made)
    model_folder.write_model_folder(tmp_path / "bare", imported.model, bare)
    first, second = (
        load_file(path) for path in exporting.export_checkpoint(tmp_path / "bare", tmp_path / "voice.safetensors")
    )
    assert sorted(first) == sorted(golden[0])
    assert sorted(second) == sorted(golden[1])
    for name in ("torch_spec.0.filter", "torch_spec.1.mel_scale.fb", "torch_spec.1.spectrogram.window"):
        name = f"hifigan_decoder.speaker_encoder.{name}"
        np.testing.assert_allclose(first[name], golden[0][name], atol=1e-5)


def test_a_trainers_checkpoint_is_the_same_model(golden, tmp_path):
    """It has the prefix "xtts." and contains the codec, feature extractors and the optimizer."""
    tensors = {f"xtts.{name}": tensor for name, tensor in golden[0].items()}
    tensors.update((f"dvae.{name}", tensor) for name, tensor in golden[1].items())
    tensors["torch_mel_spectrogram_style_encoder.mel_stft.spectrogram.window"] = np.ones(8, np.float32)
    tensors["torch_mel_spectrogram_dvae.mel_stft.spectrogram.window"] = np.ones(8, np.float32)
    path = checkpoint(tmp_path / "best_model.pth", tensors, optimizer={"state": {0: {"step": 3}}}, step=10)
    imported = importing.import_checkpoint(path, tmp_path / "out")
    same(load_file(tmp_path / "out" / "model.safetensors"), whole(golden))
    assert imported.ignored == 2


def test_extra_tensors_of_v1_are_ignored(golden, tmp_path):
    """The copy for inference, the unused embedding and older libraries' masks are not part of the model."""
    more = {
        "gpt.gpt_inference.transformer.h.0.ln_1.weight": np.ones(64, np.float32),
        "gpt.gpt.wte.weight": np.ones((98, 64), np.float32),
        "gpt.gpt.h.0.attn.bias": np.ones((1, 1, 8, 8), bool),
        "gpt.gpt.h.0.attn.masked_bias": np.array(-1e4, np.float32),
    }
    imported = importing.import_checkpoint(checkpoint(tmp_path / "model.pth", {**golden[0], **more}), tmp_path / "out")
    same(load_file(tmp_path / "out" / "model.safetensors"), golden[0])
    assert imported.ignored == 4
    assert imported.model.parts == ("gpt", "decoder", "speaker")
    assert imported.model.size.codec.codes == 96
    assert "no codec" in imported.text()


def test_a_model_without_a_perceiver_is_imported_for_export_only(golden, tmp_path):
    """XTTS v1 has none: the import says what it cannot be used for, and export restores it."""
    tensors = {name: tensor for name, tensor in golden[0].items() if "perceiver" not in name}
    imported = importing.import_checkpoint(checkpoint(tmp_path / "model.pth", tensors), tmp_path / "out")
    assert imported.model.size.gpt.perceiver_layers == 0
    assert "no perceiver: this is an XTTS v1, which can be exported, but not trained" in imported.text()
    exporting.export_checkpoint(tmp_path / "out", tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    same({name: again[name] for name in tensors}, tensors)


def test_both_spellings_of_weight_norm_are_read(golden, tmp_path):
    """weight_g and weight_v get the current names, with the same values."""
    older = {
        name.replace(SCALE, ".weight_g").replace(DIRECTION, ".weight_v"): value for name, value in golden[0].items()
    }
    assert sum(name.endswith("weight_g") for name in older) == 76
    importing.import_checkpoint(checkpoint(tmp_path / "model.pth", older), tmp_path / "out")
    same(load_file(tmp_path / "out" / "model.safetensors"), golden[0])


def test_folded_weights_are_exported_with_weight_norm(golden, tmp_path):
    """A checkpoint without weight norm is exported with it, and is equal when folded again."""
    from xtts.weights.weight_norm import fold_weight_norm

    folded = fold_weight_norm(golden[0])
    importing.import_checkpoint(checkpoint(tmp_path / "model.pth", folded), tmp_path / "out")
    same(load_file(tmp_path / "out" / "model.safetensors"), folded)
    (exported,) = exporting.export_checkpoint(tmp_path / "out", tmp_path / "voice.safetensors")
    assert sorted(load_file(exported)) == sorted(golden[0])
    same(fold_weight_norm(load_file(exported)), folded)


def test_mel_norms_may_be_a_separate_file(golden, tmp_path):
    """If the checkpoint has no mel_stats, mel_norms.pth provides them."""
    tensors = {name: tensor for name, tensor in golden[0].items() if name != "mel_stats"}
    path = checkpoint(tmp_path / "model.pth", tensors)
    assert refusal(path, tmp_path / "out")[1:] == ["  mel_stats: missing, expected [80]"]
    norms = save(golden[0]["mel_stats"], tmp_path / "mel_norms.pth")
    importing.import_checkpoint(path, tmp_path / "out", mel_norms=norms)
    same(load_file(tmp_path / "out" / "model.safetensors"), golden[0])


def test_heads_are_read_from_a_pickled_config(golden, tmp_path):
    """The published v2 pickles its config's class, which is not instantiated, but its heads are read."""
    kinds = ("TTS.tts.configs.xtts_config.XttsConfig", "TTS.tts.models.xtts.XttsArgs")
    with modules(kinds) as made:
        config, arguments = made[kinds[0]](), made[kinds[1]]()
        arguments.gpt_n_heads = 2
        config.model_args = arguments
        program, storages = pickled({"model": golden[0], "config": config}, made)
    path = archive(tmp_path / "model.pth", program, storages)
    assert importing.import_checkpoint(path, tmp_path / "out").model.size.gpt.heads == 2


# Tensors that do not fit


def test_every_tensor_that_does_not_fit_is_in_one_list(golden, tmp_path):
    """Missing, surplus and misshapen ones are listed with name and shapes, and nothing is written."""
    tensors = dict(golden[0])
    del tensors["gpt.gpt.h.1.ln_1.weight"]
    del tensors["hifigan_decoder.waveform_decoder.ups.2" + DIRECTION]
    tensors["gpt.text_embedding.weight"] = tensors["gpt.text_embedding.weight"][:, :63]
    tensors["hifigan_decoder.speaker_encoder.bn1.num_batches_tracked"] = np.zeros(2, np.int64)
    tensors["gpt.final_norm.bias"] = np.zeros(64, np.int64)
    tensors["gpt.surprise"] = np.zeros((2, 3), np.float32)
    lines = refusal(checkpoint(tmp_path / "model.pth", tensors), tmp_path / "out")
    assert lines[0].startswith(str(tmp_path / "model.pth"))
    assert "nothing was loaded" in lines[0]
    assert sorted(lines[1:]) == [
        "  gpt.final_norm.bias: has int64 numbers, expected float32",
        "  gpt.gpt.h.1.ln_1.weight: missing, expected [64]",
        "  gpt.surprise: surplus, has [2, 3]",
        "  gpt.text_embedding.weight: has [50, 63], expected [50, 64]",
        "  hifigan_decoder.speaker_encoder.bn1.num_batches_tracked: has [2], expected []",
        f"  hifigan_decoder.waveform_decoder.ups.2{DIRECTION}: missing, expected [8, 4, 4]",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["model.pth"]


def test_a_missing_layer_is_detected(golden, tmp_path):
    """Layers are counted up to the last one, so that the next does not fill a gap."""
    tensors = {name: tensor for name, tensor in golden[0].items() if not name.startswith("gpt.gpt.h.0.")}
    lines = refusal(checkpoint(tmp_path / "model.pth", tensors), tmp_path / "out")
    assert len(lines) == 1 + 12
    assert all(line.startswith("  gpt.gpt.h.0.") and "missing" in line for line in lines[1:])


def test_a_codec_of_another_model_does_not_fit(golden, tmp_path):
    """XTTS v1's codec has more codes than v2's GPT."""
    dvae = dict(golden[1])
    dvae["codebook.cluster_size"] = np.zeros(200, np.float32)
    dvae["codebook.embed"] = dvae["codebook.embed_avg"] = np.zeros((16, 200), np.float32)
    dvae["discrete_loss.accumulator"] = np.zeros((100, 200), np.float32)
    path = checkpoint(tmp_path / "model.pth", golden[0])
    lines = refusal(path, tmp_path / "out", save(dvae, tmp_path / "dvae.pth"))
    assert "  gpt.mel_embedding.weight: has [98, 64], expected [202, 64]" in lines


@pytest.mark.parametrize(
    "name", ["gpt.gpt.h.999999.ln_1.weight", "dvae.encoder.999999.weight", "gpt.gpt.h.9" + "9" * 50]
)
def test_an_absurd_layer_number_does_not_make_an_absurd_list(golden, tmp_path, name):
    """It is one surplus tensor, not a million missing ones."""
    path = checkpoint(tmp_path / "model.pth", {**golden[0], name: np.ones(64, np.float32)})
    assert len(refusal(path, tmp_path / "out")) < 500


def test_entries_that_are_not_tensors_are_listed(golden, tmp_path):
    """A text or a number among the weights is reported with its name."""
    lines = refusal(checkpoint(tmp_path / "model.pth", {**golden[0], "gpt.x": "text", 3: 4}), tmp_path / "out")
    assert lines[1:] == [
        "  'gpt.x': is str, expected a tensor under a name",
        "  3: is int, expected a tensor under a name",
    ]


@pytest.mark.parametrize("value", [{"model": {}}, {"a": 1}, [1, 2], 3, {"model": {"a": {"b": 1}}}])
def test_a_file_without_tensors_is_not_a_checkpoint(tmp_path, value):
    """The error has the path."""
    path = save(value, tmp_path / "model.pth")
    assert refusal(path, tmp_path / "out") == [
        f"{path}: there is no state dict in it; name a checkpoint, such as model.pth"
    ]


def test_an_existing_folder_is_not_overwritten(files):
    """An import creates a new folder or fills an empty one."""
    model, dvae, out = files
    out.mkdir()
    importing.import_checkpoint(model, out, dvae)
    before = (out / "model.safetensors").read_bytes()
    assert "exists already" in refusal(model, out, dvae)[0]
    assert (out / "model.safetensors").read_bytes() == before


def test_a_failed_write_leaves_nothing(files, monkeypatch):
    """A disk that becomes full leaves neither a folder nor a draft."""
    model, dvae, out = files
    before = sorted(out.parent.iterdir())

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(importing.json, "dumps", full)
    assert "No space left on device" in refusal(model, out, dvae)[0]
    assert sorted(out.parent.iterdir()) == before


def test_heads_must_divide_the_width(golden, tmp_path):
    """The config of another model is detected."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_args": {"gpt_n_heads": 7}}))
    lines = refusal(checkpoint(tmp_path / "model.pth", golden[0]), tmp_path / "out", config=config)
    assert lines[1:] == ["  a width of 64 is not divisible by 7 heads"]


@pytest.mark.parametrize("content", ["", "[", "[]", "{}", '{"size": {}}', "null", '{"n_mels": "a"}'])
def test_a_damaged_model_json_is_refused(files, content):
    """The error names model.json, which a user may have edited."""
    model, dvae, out = files
    importing.import_checkpoint(model, out, dvae)
    (out / "model.json").write_text(content)
    with pytest.raises(WeightsError, match=r"model\.json"):
        model_folder.read_model_folder(out)


def test_export_errors_name_the_cause(tmp_path, files):
    """A missing folder, a file name of another format, and a folder that is not a model are refused."""
    model, dvae, out = files
    importing.import_checkpoint(model, out, dvae)
    for folder, name, words in [
        (tmp_path / "none", "a.safetensors", "no such folder"),
        (out, "a.pth", r"ends in \.safetensors"),
        (tmp_path, "a.safetensors", r"model\.json"),
    ]:
        with pytest.raises(WeightsError, match=words):
            exporting.export_checkpoint(folder, tmp_path / name)


# The text vocabulary


def vocabulary(path, count):
    path.write_text(json.dumps({"model": {"vocab": {str(n): n for n in range(count)}}, "added_tokens": [{"id": 0}]}))
    return path


def test_a_larger_vocabulary_keeps_the_old_rows(files, golden, tmp_path):
    """New tokens get rows near the mean of the old ones, which stay bit-identical."""
    model, dvae, out = files
    vocab = vocabulary(tmp_path / "vocab.json", 60)
    assert "60 tokens, but the checkpoint has rows for 50" in refusal(model, out, dvae, vocab)[0]
    imported = importing.import_checkpoint(model, out, dvae, vocab, extend=True)
    assert imported.added_rows == 10
    assert imported.model.text_tokens == 60
    found = load_file(out / "model.safetensors")
    for name in assignment.TEXT_ROWS:
        old, rows = golden[0][name], found[name]
        assert rows[:50].tobytes() == old.tobytes()
        assert rows.shape == (60, *old.shape[1:])
        assert rows.dtype == old.dtype
        assert np.abs(rows[50:] - old.mean(axis=0)).max() < 0.6 * old.std()
        if old.ndim > 1:
            assert len(np.unique(rows[50:], axis=0)) == 10
    same(
        {name: found[name] for name in found if name not in assignment.TEXT_ROWS},
        {name: value for name, value in whole(golden).items() if name not in assignment.TEXT_ROWS},
    )
    assert (out / "vocab.json").read_bytes() == vocab.read_bytes()


def test_extending_a_vocabulary_is_deterministic(golden):
    """New rows are drawn from the given generator."""
    first, second = (assignment.extend_vocabulary(golden[0], 70, np.random.default_rng(3)) for _ in range(2))
    same(first, second)
    same(assignment.extend_vocabulary(golden[0], 50, np.random.default_rng(3)), golden[0])
    with pytest.raises(WeightsError, match="can only grow"):
        assignment.extend_vocabulary(golden[0], 49, np.random.default_rng(3))


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"model": {"vocab": {"a": "b"}}}', '{"model": {"vocab": {}}}'])
def test_an_invalid_vocabulary_is_refused(files, tmp_path, content):
    """It is refused before anything is written."""
    model, dvae, out = files
    vocab = tmp_path / "vocab.json"
    vocab.write_text(content)
    assert str(vocab) in refusal(model, out, dvae, vocab)[0]
    assert not out.exists()


# Names and sizes


@pytest.mark.parametrize("preset", SIZES)
def test_names_and_sizes_count_the_same_parameters(preset):
    """The published tensors of a preset have exactly the number of parameters of its sizes."""
    model = layout.ModelDescription(SIZES[preset], text_tokens=300)
    counted = dict.fromkeys(layout.PREFIXES, 0)
    for name, shape in layout.tensor_shapes(model).items():
        for part, prefix in layout.PREFIXES.items():
            if name.startswith(prefix):
                counted[part] += int(np.prod(shape))
    expected = count_parameters(SIZES[preset], 300)
    assert counted == {part: expected[part].total for part in layout.PREFIXES}


@pytest.mark.parametrize("preset", SIZES)
def test_a_preset_is_recognised_from_its_shapes(preset):
    """describe_tensors is the inverse of tensor_shapes."""
    model = layout.ModelDescription(SIZES[preset], text_tokens=300)
    tensors = {name: np.broadcast_to(np.float32(0), shape) for name, shape in layout.tensor_shapes(model).items()}
    assert layout.describe_tensors(tensors, {}) == model
    assert layout.layout_problems(model, tensors) == []


# Modules


def small(seed):
    from xtts.model import layers
    from xtts.model.convolution import Conv1d

    random = np.random.default_rng(seed)

    class Part(layers.Module):
        def __init__(self):
            super().__init__()
            self.init = Conv1d(80, 64, 1, random)
            self.attn = [Block()]

    class Block(layers.Module):
        def __init__(self):
            super().__init__()
            self.norm = layers.GroupNorm(64, 16)
            self.qkv = Conv1d(64, 192, 1, random)
            self.proj_out = Conv1d(64, 64, 1, random)

    return Part()


def part_of(golden):
    prefix = "gpt.conditioning_encoder."
    return prefix, {
        name: tensor for name, tensor in golden[0].items() if name.startswith((prefix + "init", prefix + "attn.0."))
    }


def test_a_module_returns_what_was_loaded(golden):
    """Loading transposes to the module's layout, publishing back: the same bits under the same names."""
    prefix, tensors = part_of(golden)
    module = small(1)
    assignment.load_weights(module, tensors, prefix)
    kernel = module.attn[0].qkv.weight
    np.testing.assert_array_equal(kernel.numpy(), np.transpose(tensors[f"{prefix}attn.0.qkv.weight"], (2, 1, 0)))
    same(assignment.published_weights(module, prefix), tensors)


def test_weights_are_loaded_completely_or_not_at_all(golden):
    """With tensors missing, misshapen or surplus, the module keeps its weights, and one list names them."""
    prefix, tensors = part_of(golden)
    del tensors[f"{prefix}init.bias"]
    tensors[f"{prefix}attn.0.norm.weight"] = np.ones(63, np.float32)
    tensors[f"{prefix}attn.1.norm.weight"] = np.ones(64, np.float32)
    module = small(2)
    before = assignment.published_weights(module)
    with pytest.raises(WeightsError) as error:
        assignment.load_weights(module, tensors, prefix)
    assert str(error.value).splitlines()[1:] == [
        f"  {prefix}init.bias: missing, expected [64]",
        f"  {prefix}attn.0.norm.weight: has [63], expected [64]",
        f"  {prefix}attn.1.norm.weight: surplus, has [64]",
    ]
    same(assignment.published_weights(module), before)


def test_weight_norm_is_folded_into_a_module(golden):
    """The weight is scale times direction over its norm; half-precision parts are folded in float32."""
    from xtts.model.convolution import Conv1d

    prefix = "hifigan_decoder.waveform_decoder.resblocks.1.convs1.0"
    tensors = {name: tensor for name, tensor in golden[0].items() if name.startswith(prefix + ".")}
    module = Conv1d(16, 16, 7, np.random.default_rng(0))
    assignment.load_weights(module, tensors, prefix + ".")
    scale, direction = tensors[prefix + SCALE], tensors[prefix + DIRECTION].astype(np.float64)
    expected = scale * direction / np.sqrt((direction**2).sum(axis=(1, 2), keepdims=True))
    np.testing.assert_allclose(module.weight.numpy(), expected.transpose(2, 1, 0), rtol=1e-5)


def test_half_precision_is_loaded_as_float32():
    """Modules keep float32, whatever the dtype of a checkpoint."""
    from xtts.model import layers

    module = layers.Linear(3, 2, np.random.default_rng(0))
    assignment.load_weights(module, {"weight": np.ones((2, 3), np.float16), "bias": np.zeros(2, np.float64)})
    assert module.weight.dtype.name == "float32"
    np.testing.assert_array_equal(module.weight.numpy(), np.ones((3, 2)))


def test_a_module_to_be_loaded_draws_no_weights(tmp_path):
    """Built without a generator it has no variables yet; loaded, it has those of any other module."""
    from xtts.model.codec import Codec

    size = SIZES["tiny"].codec
    drawn, loaded = Codec(size, 80, np.random.default_rng(0)), Codec(size, 80, None)
    assert len(loaded.trainable_variables) < len(drawn.trainable_variables)
    tensors = assignment.published_weights(drawn, "dvae.")
    safetensors_file.write_safetensors(tmp_path / "a.safetensors", tensors)
    read, _ = safetensors_file.read_safetensors(tmp_path / "a.safetensors")
    assignment.load_weights(loaded, read, "dvae.")
    same(assignment.published_weights(loaded, "dvae."), tensors)
    assert [one.trainable for one in loaded.variables] == [one.trainable for one in drawn.variables]
    same(read, tensors)  # released pages are read again


def test_a_module_without_weights_reports_what_is_missing():
    """Loading only part of its weights creates nothing, and lists all that are missing."""
    from xtts.model import layers

    module = layers.Linear(3, 2, None)
    with pytest.raises(WeightsError, match=r"weight: missing, expected \[2, 3\]"):
        assignment.load_weights(module, {"bias": np.zeros(2, np.float32)})
    assert [one.shape for one in module.variables] == [(2,)]


# Safetensors

KINDS = list(safetensors_file.DTYPES.values())


@settings(max_examples=60)
@given(data=st.data())
def test_files_are_compatible_with_the_safetensors_library(data, tmp_path_factory):
    """Each reads what the other writes, bit for bit, for any dtype, shape and name."""
    tensors = data.draw(
        st.dictionaries(
            st.text(st.characters(blacklist_categories=("Cs",)), min_size=1).filter(
                lambda name: name != "__metadata__"
            ),
            st.sampled_from(KINDS).flatmap(lambda kind: arrays.arrays(np.dtype(kind), arrays.array_shapes(min_dims=0))),
            max_size=4,
        )
    )
    folder = tmp_path_factory.mktemp("files")
    safetensors_file.write_safetensors(
        folder / "a", {name: tensor.T for name, tensor in tensors.items()}, {"format": "pt"}
    )
    same(load_file(folder / "a"), {name: tensor.T for name, tensor in tensors.items()})
    save_file(tensors, str(folder / "b"))
    same(safetensors_file.read_safetensors(folder / "b")[0], tensors)
    same(safetensors_file.read_safetensors(folder / "a")[0], {name: tensor.T for name, tensor in tensors.items()})


def raw(path, table, numbers=b""):
    header = json.dumps(table).encode() if not isinstance(table, bytes) else table
    path.write_bytes(struct.pack("<Q", len(header)) + header + numbers)
    return path


def test_bfloat16_becomes_float32(tmp_path):
    """The values are the same; NumPy has no such dtype."""
    halves = (np.array([1.5, -2, np.inf], np.float32).view(np.uint32) >> 16).astype("<u2")
    path = raw(tmp_path / "a", {"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}, halves.tobytes())
    np.testing.assert_array_equal(
        safetensors_file.read_safetensors(path)[0]["a"], np.array([1.5, -2, np.inf], np.float32)
    )


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        {"a": 1},
        {"a": {"dtype": "F32", "shape": [1]}},
        {"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}},
        {"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}},
        {"a": {"dtype": "U8", "shape": [3], "data_offsets": [1, 4]}},
        {k: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for k in "ab"},
        {"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}},
        {"__metadata__": 3, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
    ],
)
def test_an_inconsistent_safetensors_file_is_refused(tmp_path, table):
    """Invalid headers, wrong shapes, and offsets that overlap, leave gaps or are out of range are refused."""
    with pytest.raises(WeightsError, match="not a valid safetensors file"):
        safetensors_file.read_safetensors(raw(tmp_path / "a", table, b"\x00" * 4))


def test_a_truncated_safetensors_file_is_refused(tmp_path, files):
    """This holds for truncation at any length."""
    content = (GOLDEN / "speaker.weights.safetensors").read_bytes()
    for length in (0, 5, 8, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "a.safetensors").write_bytes(content[:length])
        with pytest.raises(WeightsError):
            safetensors_file.read_safetensors(tmp_path / "a.safetensors")


def test_model_json_describes_the_model(tmp_path, files):
    """model.json has every size."""
    model, dvae, out = files
    imported = importing.import_checkpoint(model, out, dvae)
    stated = json.loads((out / "model.json").read_text())
    assert stated == json.loads(json.dumps(attrs.asdict(imported.model)))
    assert stated["size"]["gpt"]["layers"] == 2


def test_checkpoints_are_read_without_tensorflow(files, tmp_path):
    """Import and export need neither TensorFlow nor PyTorch."""
    model, dvae, out = files
    code = (
        "import sys; from xtts.weights.exporting import export_checkpoint\n"
        "from xtts.weights.importing import import_checkpoint\n"
        f"import_checkpoint({str(model)!r}, {str(out)!r}, {str(dvae)!r})\n"
        f"export_checkpoint({str(out)!r}, {str(tmp_path / 'a.safetensors')!r})\n"
        "assert not {'tensorflow', 'torch'} & set(sys.modules)"
    )
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}, check=True)
