"""The data directory: layout of spanloop's files on disk, and durable, atomic replacement of files."""

from .directory import DataDir, disk_error, sync_directory, write_atomically

__all__ = ["DataDir", "disk_error", "sync_directory", "write_atomically"]
