"""`slsac bench`: how fast this machine trains, as ratios taken within one run.

Subjects take turns, several rounds of them, and medians are shown: the machine may be busy with
other things, and a ratio within one run suffers least from that. Each section is a list of records,
which `command` shows as tables and writes as JSON.
"""

SECTIONS = ("training", "on-policy", "tasks", "navigation", "evaluation", "growth", "seeds",
            "startup")  # fmt: skip
"""What can be measured; named here, where nothing heavy is imported, for the command line."""
