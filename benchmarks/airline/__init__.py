"""Episodes of an airline agent: read, broken on purpose, told as spans."""
