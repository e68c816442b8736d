# finish-generator.sh JOB: restores the generator.
set -eu
. ./leftovers.sh
drop "$jobs/$1"
