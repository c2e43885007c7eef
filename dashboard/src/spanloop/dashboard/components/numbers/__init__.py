"""The views of the page Numbers."""
