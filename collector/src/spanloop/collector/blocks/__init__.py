"""Records of the spool as blocks that ClickHouse inserts."""
