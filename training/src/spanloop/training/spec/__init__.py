"""What a job is: its specification, the defaults of each kind, presets and stages."""
