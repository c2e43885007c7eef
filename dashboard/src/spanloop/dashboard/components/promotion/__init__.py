"""Elements about promotion: decisions with their evidence, and the canary that runs."""
