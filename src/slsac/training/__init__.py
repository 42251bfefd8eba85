"""Training: from a configuration to the files of a run.

``launch`` begins or continues a run. ``off_policy`` and ``on_policy`` are the two loops. A loop's
trainer has a ``session``: its clock, ``episodes``, multiplier (``lagrangian``), ``journal`` and
``failures``. ``replay``, ``units`` and ``moments`` feed the off-policy ``learner``; ``rollout``
plays the epochs of the on-policy one. ``cohort`` trains several seeds together, ``branch`` starts
from another run's beginning.
"""
