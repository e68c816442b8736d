# forget-secrets.sh NAME...: removes the job's secrets from what tmt has copied to this machine.
set -eu
for name in "$@"; do
  find "$(dirname "$TMT_PLAN_DATA")" -name "$name" -type f -delete
done
