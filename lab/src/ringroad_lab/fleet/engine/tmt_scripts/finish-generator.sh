# finish-generator.sh JOB: the generator is left as it was.
set -eu
. ./leftovers.sh
drop "$jobs/$1"
