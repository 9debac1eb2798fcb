"""`python -m streamoe_node` is `streamoe-node`."""

from .cli import main

main()
