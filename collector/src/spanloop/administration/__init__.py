"""Administration of stored data: backup, restore, copy, forget and retention."""
