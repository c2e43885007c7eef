"""Alerts: rules over episodes, jobs and promotions, and messages to webhooks, Slack and mail about what they find."""
