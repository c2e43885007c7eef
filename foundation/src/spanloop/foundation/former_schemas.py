"""The commit that opens a database whose schema is older than the initial one of this code."""

from typing import Final

OPENING_COMMIT: Final = "efef255d"
"""The last commit that migrates older schemas, of ClickHouse and of the control database, to the initial ones."""
OPEN_ONCE: Final = f"Open it once with commit {OPENING_COMMIT} of spanloop, then with this one."
"""The next step of an error about an older schema."""
