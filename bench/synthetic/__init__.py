"""Random-weight checkpoints of the Qwen3.5/3.6 Mixture-of-Experts shape, written in a stream.

Owns shapes, noise and the two file layouts. Refuses to know the engine: what it writes is a source checkpoint.
"""
