"""The loop: rounds of collecting, training, evaluating, deciding and deploying, as one file describes them."""
