"""Who may speak to whom: the cluster's authority, pairing by a one-time code, mTLS, and where a port may be open.

Owns keys and certificates. Refuses to know what travels over the connections.
"""
