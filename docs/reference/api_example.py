"""The examples of api.md, one below the `# name` that each is of; tests/docs/test_api.py runs all of them."""

import attrs

import xtts

# load_recipe
recipe = xtts.load_recipe("recipe.toml")
print(recipe.train.steps, recipe.model.size)

# Recipe
shorter = attrs.evolve(recipe, train=attrs.evolve(recipe.train, steps=2))

# plan
plan = xtts.plan(shorter)
print(plan.text())
print(plan.traces, plan.steps_per_epoch)

# train
folder = xtts.train(shorter)

# Synthesizer
speaker = xtts.Synthesizer.load(folder)
wave = speaker.say("Good morning.", voice="reference.wav", language="en", seed=1)
wave.write("out.wav")
for samples in speaker.stream("Good morning.", voice="reference.wav"):
    print(len(samples) / speaker.sample_rate)

# Voice
voice: xtts.Voice = speaker.voice(["reference.wav"])
wave = speaker.say("Good night.", voice)

# evaluate
evaluation = xtts.evaluate(folder, utterances=2, recogniser="none")
print(evaluation.text())

# export
xtts.export(folder, "weights.safetensors")
xtts.export(folder, "saved_model")

# import_checkpoint
imported = xtts.import_checkpoint("model.pth", "imported", dvae="dvae.pth", vocab="vocab.json")
print(imported.text())

# compat
print(xtts.compat.OFFERED.version)

# XttsError
try:
    xtts.load_recipe("missing.toml")
except xtts.XttsError as error:
    print(error)

# __version__
print(xtts.__version__)
