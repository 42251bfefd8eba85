"""Statistics of episodes, with numpy and scipy alone.

``tail``: CVaR and a fitted tail. ``pareto``: the generalised Pareto distribution. ``confidence``:
intervals and bounds from a sample. ``bounds``: what a limit and a critic's error imply.
``distance``: between predicted and realised costs. ``summary``: an evaluation in figures.
"""
