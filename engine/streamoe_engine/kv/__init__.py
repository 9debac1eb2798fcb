"""Keys and values of attention layers, stored for the whole planned context at once.

`formats` is pure (the planner imports it); `dense` holds the arrays.
"""
