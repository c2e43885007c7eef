"""What a job learns from: rows, groups, pairs and texts, selected, credited and exported."""
