"""The demos: the whole loop on this machine, with agents and models of their own."""
