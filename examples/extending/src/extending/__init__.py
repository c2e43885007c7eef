"""Extensions of spanloop in a package of one's own."""
