"""Grids of trials: each is an ordinary run, trained by a process of its own.

`spec` reads the YAML file, `schedule` runs its trials on a backend (`local` or `ray`), `process`
and `child` are the two ends of a trial's process, and `products` writes what the sweep is for.
"""
