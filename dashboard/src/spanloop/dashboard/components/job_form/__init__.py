"""Elements that start a job: the form with all settings, the short dialog, and the plan of both."""
