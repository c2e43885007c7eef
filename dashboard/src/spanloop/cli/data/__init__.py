"""Commands that read and write stored data."""
