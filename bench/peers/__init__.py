"""Other servers of the same model beside voicegate, on one card: `python -m voicegate.bench.peers`."""
