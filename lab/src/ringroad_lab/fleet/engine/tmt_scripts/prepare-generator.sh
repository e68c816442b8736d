# prepare-generator.sh JOB: the generator gets the job's key and settings; what an earlier job left there is ended.
set -eu
. ./leftovers.sh
umask 077
mkdir -p "$jobs"
for old in "$jobs"/*; do
  [ ! -d "$old" ] || drop "$old"
done
mkdir "$jobs/$1"
cp job.key job.environment known_hosts fleet.toml "$jobs/$1"
