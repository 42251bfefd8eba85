"""``python -m slsac`` is ``slsac``."""

import os
import sys

# Python puts the working directory first. What is imported must not depend on where one stands.
if sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from slsac.cli import main

sys.exit(main())
