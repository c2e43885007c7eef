"""Recordings that come with spanloop: the spans, episodes, jobs and models of one tiny demo, as a backup.

Invariant: they lie in a data directory of their own, which a restore fills once; nothing is mixed with a user's data.
"""

import tarfile
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir

DIRECTORY: Final = ".spanloop-sample"
"""In the home directory, unless another place is named."""
_RECORDINGS: Final = files("spanloop.runtime") / "samples" / "tiny.tar.gz"
_MARK: Final = "sample"
"""File of a data directory that was made of the recordings."""


def restore_sample(directory: "DataDir") -> bool:
    """Restore the recordings into a new data directory; return False where that was done before.

    Raises:
        ConfigurationError: The directory holds something else.
        DataDirectoryError: The directory is not writable, or the recordings are damaged.
    """
    from spanloop.administration.restore import Targets, restore
    from spanloop.training.jobs.database.database_copy import renew_tokens

    mark = directory.path / _MARK
    if mark.exists():
        return False
    with tempfile.TemporaryDirectory(prefix="spanloop-sample-") as folder:
        with as_file(_RECORDINGS) as archive, tarfile.open(archive) as recordings:
            recordings.extractall(folder, filter="data")
        restore(Path(folder), directory, on_progress=lambda *_: None, targets=Targets(renew_tokens=renew_tokens))
    mark.touch()
    return True
