"""Plain episodes: traces in which nothing went wrong, converted in columns.

Most episodes are like that: one trace, conversations that grow by what was said (``chains`` where there is one, else
``lanes``), tools that answered, a reward that is no failure. So are calls of which nobody recorded what was said
(``silent``), calls that stand by themselves (``talk``), and ids without log-probabilities in their spans. They need no
stitching across traces, no attribution and no object for each span. Invariant: they come out exactly as the long way
(``stitch``, ``steps``, ``attribution``, ``trajectories``) would give them, to the byte; what may be unusual in any way
takes that way.
"""

from .episodes import Plain, read_plain, touched
from .tables import PlainTables, tables

__all__ = ["Plain", "PlainTables", "read_plain", "tables", "touched"]
