"""Object storage: folders of files at an fsspec URL such as ``s3://bucket/prefix``, and a local cache of them.

`object_storage` alone decides whether there is one and where; `remote` alone imports fsspec.
"""

from .storage import ObjectStorage, object_storage, open_store

__all__ = ["ObjectStorage", "object_storage", "open_store"]
