"""Measuring: one configuration, a sweep over caps, a search for the fastest settings, traces of routing.

Owns what is measured and how it is drawn. Refuses to know the command line. Only `measure` and `trace` open a band.
"""
