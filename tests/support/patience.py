"""How long a test waits for what has to come: it ends those that hang, and measures nothing."""

from typing import Final

# Nothing that works takes so long, however busy the machine is.
PATIENCE_S: Final = 60.0
