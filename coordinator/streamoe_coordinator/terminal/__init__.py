"""What a person at a terminal sees and types. Owns looks; refuses to know how answers come about."""
