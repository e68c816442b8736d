# authorize.sh add|remove: a machine takes the job's key, or takes it no more.
set -eu
umask 077
mkdir -p ~/.ssh
touch ~/.ssh/authorized_keys
# Two phases may be at it at once, where two roles are one machine.
exec 9<~/.ssh
flock 9
kept=$(mktemp ~/.ssh/authorized_keys.XXXXXX)
# Jobs have a bed one after the other: any other such key is of one that was killed.
grep -v ' ringroad-lab-tmt-job-' ~/.ssh/authorized_keys >"$kept" || true
[ "$1" = remove ] || sed 's/^/restrict /' job.pub >>"$kept"
chmod --reference="$(readlink -f ~/.ssh/authorized_keys)" "$kept"
mv "$kept" "$(readlink -f ~/.ssh/authorized_keys)"
