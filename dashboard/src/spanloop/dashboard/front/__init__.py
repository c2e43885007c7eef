"""The dashboard's front: every request passes it, and the pages behind it have no port of their own."""
