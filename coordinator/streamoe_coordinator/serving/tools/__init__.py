"""Tool calls: how a model is told of tools, and how its calls are found in what it writes.

Owns the formats (mlx-lm's parsers), the prompt's side, the stream's side, and the grammar of a call that must come.
Refuses to know of HTTP and of any API's JSON.
"""
