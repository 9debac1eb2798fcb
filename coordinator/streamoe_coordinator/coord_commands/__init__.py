"""The commands of `streamoe-coord`, a module each."""
