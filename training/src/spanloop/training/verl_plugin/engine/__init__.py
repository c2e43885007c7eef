"""verl's engine on a CPU: platform, attention over packed prompts, optimiser, debug trainer."""
