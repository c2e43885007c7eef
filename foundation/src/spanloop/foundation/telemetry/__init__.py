"""What every role offers its operator: metrics, a health report, logs."""
