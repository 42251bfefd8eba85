"""On-policy algorithms: play an epoch with one policy, update it once, and play the next."""
