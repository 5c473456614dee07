"""`python -m rota` is the command `rota`."""

from __future__ import annotations

import sys

from rota.cli.main import main

sys.exit(main())
