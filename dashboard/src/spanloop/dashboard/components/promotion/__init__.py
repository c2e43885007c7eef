"""What a page shows of a promotion: decisions with their evidence, and the canary that runs."""
