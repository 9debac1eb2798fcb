"""A cluster in virtual time: the real chain and the real node core, a wire that a seed spoils, bands that are exact."""
