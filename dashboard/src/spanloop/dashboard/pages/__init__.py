"""The built-in pages, one file each; ``page.PAGE_POINT`` lists them in order."""
