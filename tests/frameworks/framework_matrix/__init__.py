"""The live framework matrix: unchanged apps of every framework against a scripted model, see ``make test-frameworks``."""
