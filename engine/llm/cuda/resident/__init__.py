"""One kernel for a whole step of one line: kernel/decode_step.cu, what its programs do, and its launch."""
