"""Other servers of the same model beside voicegate, on one machine: `python -m voicegate.bench.peers`."""
