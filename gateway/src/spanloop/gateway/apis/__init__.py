"""APIs besides Chat Completions: Responses, Messages and text completions, converted to and from chats."""
