"""Exports: rows of the tables as files that other programs train on.

``chat`` spells messages as OpenAI does; each kind has a module and a line in ``kinds``; ``writing`` makes a folder of
files and a manifest out of it. The same rows give the same bytes.
"""

from .base import ExportOptions, Kind, Made, Source
from .kinds import KINDS
from .writing import Manifest, Pinned, export

__all__ = ["KINDS", "ExportOptions", "Kind", "Made", "Manifest", "Pinned", "Source", "export"]
