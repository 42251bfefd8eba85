"""SL-SAC and every off-policy baseline: compositions of the same parts.

``agent`` is one update: critics, then policy (`policy_loss` charges the CVaR), then targets.
``policy`` holds the policy heads, ``reward_critic`` and ``cost_critic`` the critics. ``reference``
is SL-SAC on one page, slow and plain, which the fast one is tested against.
"""
