"""`slsac bench`: how fast this machine trains, as ratios taken within one run.

Subjects take turns for several rounds, and medians are shown: the machine may be busy with other
things, and a ratio within one run suffers least from that. Each section is a list of records,
which the command shows as tables and writes as JSON.
"""

SECTIONS = ("training", "on-policy", "tasks", "navigation", "evaluation", "growth", "seeds",
            "startup")  # fmt: skip
"""What can be measured."""
PEERS = {"omnisafe": ("omnisafe_loop.py", "SACLag"), "sbx": ("sbx_loop.py", "SAC")}
"""Script under benchmarks/peers, and the algorithm that it trains."""
# Both are named here, where nothing heavy is imported, for the command line.
