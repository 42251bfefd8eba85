"""PPO-Lagrangian and CPO.

``agent`` is one epoch's learning. ``ppo_lag`` and ``cpo`` each build it; ``critics`` and
``samples`` are what they share, ``gae`` estimates advantages, ``policy`` is the Gaussian.
"""
