"""The decisions of the fence, without I/O."""
