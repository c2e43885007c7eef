"""Answers to an assistant's questions about the store, by the Model Context Protocol over HTTP or standard input.

Invariant: tools only read, within limits, and only what the key of the request may see. What a reply quotes from the
store stands between markers that stored text cannot contain, and is named as data.
"""
