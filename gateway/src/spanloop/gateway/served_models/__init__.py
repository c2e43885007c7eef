"""The models that one gateway serves: the first one, and further ones beside it."""
