"""The pages, one file each; ``app.py`` names them in order."""
