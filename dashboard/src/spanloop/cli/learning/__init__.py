"""Commands that run, evaluate, train, promote and deploy."""
