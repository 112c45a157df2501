#!/bin/sh
# Prints pip's constraints for a torch with CUDA. They are those of constraints.txt, with gpu-versions.txt in place of what
# both name. CUDA's packages are left to torch, which names them exactly.
set -eu

cd "$(dirname "$0")"
awk -F== 'NR == FNR { own[$1]; next } !($1 in own) && !/^(cuda|nvidia)-/' gpu-versions.txt ../constraints.txt
cat gpu-versions.txt
