"""The engine: text in, encoded speech out. It knows nothing of the wire; interface.py is what others see of it."""

import os

# Read by OpenMP when torch is loaded, so set before anything below this package can import it: threads that wait for
# each other sleep instead of spinning. Spinning ones burn the core that the thread they wait for would run on: beside
# busy neighbours a step takes ten times longer (docs/adr/0018). But first they look for the time
# between two operations: a thread that is woken for each takes twice the time. Where there are neighbours, nobody waits
# for a thread on their cores (device/shared_cores.py).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # of GNU's OpenMP, which torch's wheels have; others sleep at once
