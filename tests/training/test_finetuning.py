"""Fine-tuning published weights: the public trainer's losses, gradients and steps."""

import attrs
import numpy as np
import pytest
import tensorflow as tf
from public_trainer import VARIANTS, batch_of, set_up, ten_steps
from published import import_published, training_figures

from xtts.planning.sizes import SIZES
from xtts.recipe.defaults import resolve_defaults
from xtts.recipe.schema import DataSection, Recipe
from xtts.training.optimizer import decays
from xtts.training.stages.stage import trainable_weights
from xtts.weights import assignment
from xtts.weights.model_folder import read_model_folder


@pytest.fixture(scope="module")
def figures():
    return training_figures()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "model"
    import_published(folder)
    return folder


@pytest.fixture
def tune(folder, monkeypatch):
    """A function that sets up fine-tuning of the published model with some settings of [train]."""
    model, tensors = read_model_folder(folder)
    monkeypatch.setitem(SIZES, "tiny", model.size)
    return lambda **train: set_up(tensors, **train)


@pytest.mark.parametrize("variant", VARIANTS)
def test_ten_steps_have_the_public_trainers_losses(tune, figures, variant):
    """Every loss before, during and after ten steps, the first gradient's norm and the weights at the end."""
    tensors, about = figures
    recipe, stage, steps = tune(**VARIANTS[variant])
    wanted, results = tensors[f"{variant}/losses"], ten_steps(recipe, steps)
    assert results[0].gradient_norm == pytest.approx(about[f"{variant}_first_gradient_norm"], rel=1e-4)
    found = [(result.parts["text"], result.parts["codes"], result.loss) for result in results]
    for number in (0, 1):
        arrays, _ = batch_of(recipe, number)
        losses = stage.losses(arrays, None, tf.constant([0, 0]), training=False).means.numpy()
        found.append((*losses, stage.weights @ losses))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    weights = assignment.published_weights(stage.model)
    after = {name.rpartition("/")[2]: value for name, value in tensors.items() if name.startswith(f"{variant}/after/")}
    for name, value in after.items():
        # Gradients of the keys' biases are rounding errors, of which Adam makes steps of full length.
        np.testing.assert_allclose(weights[name], value, atol=0.005 * np.abs(value).max(), err_msg=name)


def test_weights_decay_in_the_public_trainers_groups(tune, figures):
    """Matrices decay, and the perceiver's scale; biases, norms and embeddings do not."""
    _, about = figures
    _, stage, _ = tune()
    variables = {name: weight.variable for name, weight in trainable_weights(stage).items()}
    decayed = {name for name, is_decayed in zip(variables, decays(variables, "published")) if is_decayed}
    assert decayed == set(about["groups"]["decay"])
    assert set(variables) - decayed == set(about["groups"]["no_decay"])
    assert all(decays(variables, "all"))


@pytest.mark.parametrize(
    ("masks", "loss"),
    # With these cuts coqui-tts 0.28 has the second loss for the same weights, and the first one without a mask.
    [(False, 12.737964630126953), ("published", 14.12952995300293)],
)
def test_the_public_trainers_mask_is_reproduced(tune, masks, loss):
    """Its mask reaches the last row only, at positions of the mel; without it every code has a loss."""
    recipe, stage, _ = tune(mask_reference_codes=masks)
    arrays, totals = batch_of(recipe, 0, cuts=[(1000 // 256, 9000 // 256), (2000 // 256, 20000 // 256)])
    losses = stage.losses(arrays, None, tf.constant([0, 0]), training=True)
    assert float(losses.means[1]) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_array_equal(losses.counts, totals)


def test_by_default_the_codes_of_each_rows_cut_have_no_loss(tune, figures):
    """The codes are those of the samples that were cut out, in every row."""
    _, about = figures
    recipe, stage, _ = tune()
    arrays, totals = batch_of(recipe, 1)
    cuts = np.array(about["batches"][1]["cuts"]) // 1024
    np.testing.assert_array_equal(arrays["masked_codes"], cuts)
    losses = stage.losses(arrays, None, tf.constant([0, 0]), training=True)
    unmasked = {**arrays, "masked_codes": np.zeros((2, 2), np.int32)}
    every = stage.losses(unmasked, None, tf.constant([0, 0]), training=True)
    assert float(every.counts[1]) - float(losses.counts[1]) == (cuts[:, 1] - cuts[:, 0]).sum()
    np.testing.assert_array_equal(losses.counts, totals)


def test_models_trained_from_nothing_keep_their_defaults():
    """What published weights use is not used without them, and what a recipe states is kept."""
    own, published = (resolve_defaults(Recipe(), is_published) for is_published in (False, True))
    assert (own.data.reference_from, own.data.reference_min_seconds) == ("speaker", None)
    assert own.train.weight_decay_on == "matrices"
    assert (published.data.reference_from, published.data.reference_min_seconds) == ("utterance", 3.0)
    assert published.train.weight_decay_on == "published"
    assert resolve_defaults(published, is_published=False) == published
    stated = attrs.evolve(Recipe(), data=DataSection(reference_from="speaker"))
    assert resolve_defaults(stated, is_published=True).data == stated.data
