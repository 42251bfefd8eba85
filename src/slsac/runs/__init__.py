"""What a run is on disk.

``layout`` names the files. ``config_file``, ``checkpoint``, ``log`` and ``tensors`` read and write
them, ``lock`` keeps two processes apart, ``provenance`` says what a run was made with and whether
it can be repeated exactly. ``policy`` loads what was learned; ``steps`` says how far a run has
come.
"""
