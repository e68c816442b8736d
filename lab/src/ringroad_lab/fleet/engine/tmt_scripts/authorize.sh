# authorize.sh add|remove: authorizes the job's key on a machine, or removes it.
set -eu
umask 077
mkdir -p ~/.ssh
touch ~/.ssh/authorized_keys
# Two phases can run at the same time if one machine has two roles.
exec 9<~/.ssh
flock 9
kept=$(mktemp ~/.ssh/authorized_keys.XXXXXX)
# A bed has one job at a time: any other such key is left from a killed job.
grep -v ' ringroad-lab-tmt-job-' ~/.ssh/authorized_keys >"$kept" || true
[ "$1" = remove ] || sed 's/^/restrict /' job.pub >>"$kept"
chmod --reference="$(readlink -f ~/.ssh/authorized_keys)" "$kept"
mv "$kept" "$(readlink -f ~/.ssh/authorized_keys)"
