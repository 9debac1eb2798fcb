"""Checks of this machine, its disk, a model folder and its arithmetic: what was measured, and one fix each.

Owns what is checked and judged. Refuses to print, and to know other machines.
"""

from .check import Check, Status
from .report import run_checks

__all__ = ["Check", "Status", "run_checks"]
