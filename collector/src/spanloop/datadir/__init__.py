"""The data directory: the layout of one spanloop's files on disk, and durable file replacement."""

from .directory import DataDir, disk_error, sync_directory, write_atomically

__all__ = ["DataDir", "disk_error", "sync_directory", "write_atomically"]
