"""The gRPC services of a node: the edge where messages become values and values messages. They never compute."""
