"""What a run is on disk.

``layout`` names the files. ``config_file``, ``checkpoint``, ``log`` and ``tensors`` read and write
them, and ``schema`` checks what is read. ``lock`` keeps two processes apart, ``identity`` tells
runs apart, and ``provenance`` says what a run was made with and whether it can be repeated exactly.
``policy`` loads what was learned, ``export`` writes it for use without slsac, and ``steps`` says
how far a run has come.
"""
