"""One band of a Mixture-of-Experts model on one machine, under a hard memory cap.

Owns planning, streaming and computing of layers a..b. Refuses to know sockets, command lines and HTTP.
"""
