"""The engine: text in, encoded speech out. It knows nothing of the wire; interface.py is what others see of it."""

import os

# Read by OpenMP when torch is loaded, so set before anything below this package can import it: threads that wait for
# each other sleep instead of spinning. Spinning ones burn the core that the thread they wait for would run on: beside
# busy neighbours a step takes ten times longer (bench/neighbours.py, docs/adr/0024).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
