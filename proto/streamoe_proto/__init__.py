"""Wire messages between nodes and the coordinator. Nothing but the two edges may import this package."""
