"""What a running training reports, and what ends it early."""
