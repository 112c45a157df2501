"""Jobs as they are kept: states in a ledger, audio in files.

A part's file is written, made safe and named before the ledger says that it is done. So a kill at any moment loses
nothing that is done, and leaves nothing half done. Blocking: for one thread. Raises OSError and the ledger's failures.
"""

from dataclasses import dataclass

from voicegate.gateway.server.jobs.files import JobFiles, PartAudio, PartFile
from voicegate.gateway.server.jobs.ledger import Claim, Ledger


@dataclass(frozen=True, slots=True)
class JobStore:
    ledger: Ledger
    files: JobFiles

    def close(self) -> None:
        self.ledger.close()
        self.files.close()

    def remove(self, job_id: str) -> None:
        """Its audio first: after a kill in between, expiry finds the job again."""
        self.files.remove(job_id)
        self.ledger.remove(job_id)

    def finish_part(self, claim: Claim, audio: PartAudio, num_characters: int) -> bool:
        """False: the job has ended, or was removed, or another gateway was faster."""
        self.files.write(claim.job.id, claim.file, audio)
        if is_done := self.ledger.finish(claim, audio, num_characters):
            return is_done
        self.files.drop(claim.job.id, claim.file)
        return False

    def parts(self, job_id: str, part: int | None = None, of_input: int | None = None) -> list[PartFile] | None:
        """Files of all parts, of one, or of one input, in order. None: some are not done; empty: there are none."""
        parts = self.ledger.parts(job_id, part, of_input)
        done = [self.files.part(job_id, each.file, each.end_pts_48k) for each in parts if each is not None]
        return done if len(done) == len(parts) else None
