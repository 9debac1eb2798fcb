"""`python -m streamoe_coordinator` is `streamoe`."""

from .cli import main

main()
