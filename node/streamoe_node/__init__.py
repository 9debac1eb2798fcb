"""`streamoe-node`: serves one band to a coordinator. The engine's band is all it knows of computing."""
