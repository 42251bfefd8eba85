"""``python -m slsac`` is ``slsac``."""

import sys

from slsac.cli import main

sys.exit(main())
