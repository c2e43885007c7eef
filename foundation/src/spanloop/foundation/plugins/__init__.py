"""Extensions: what a package may add to spanloop, and the one lookup that built-ins and packages share.

Each kind (rule, judge, reward, reader, grader, selection, recipe, page) is one `ExtensionPoint`: an entry point group,
a base class, and a table of built-ins. ``lookup`` imports objects by name, ``extension`` is the base class with typed
options, ``callables`` makes a class of a plain function, and ``point`` finds and lists what is available.
"""

from .callables import adapt_callable
from .extension import Extension, Option, options_from, split_reference
from .lookup import find_extension, offered_extensions
from .point import ExtensionPoint, Listed

__all__ = [
    "Extension",
    "ExtensionPoint",
    "Listed",
    "Option",
    "adapt_callable",
    "find_extension",
    "offered_extensions",
    "options_from",
    "split_reference",
]
