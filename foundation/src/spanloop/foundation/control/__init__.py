"""The control database: engines, sessions, its clock and its errors; who opens it states the tables."""
