# prepare-generator.sh JOB: ends what an earlier job left on the generator, and installs the job's key and settings.
set -eu
. ./leftovers.sh
umask 077
mkdir -p "$jobs"
for old in "$jobs"/*; do
  [ ! -d "$old" ] || drop "$old"
done
mkdir "$jobs/$1"
cp job.key job.environment known_hosts fleet.toml "$jobs/$1"
