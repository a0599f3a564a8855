"""Planning: lengths of utterances become static shapes, a batch order and bytes a device."""
