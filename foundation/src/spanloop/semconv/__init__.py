"""The vocabulary that every part shares: attribute names, basic errors and where to find a running spanloop.

Standard library only: this package is imported inside users' apps.
"""
