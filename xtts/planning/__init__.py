"""Planning: static shapes, the batch order and memory estimates, from the lengths of utterances."""
