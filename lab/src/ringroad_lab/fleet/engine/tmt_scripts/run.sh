# run.sh JOB LAB ARGUMENT...: executes the run on the generator; the test returns its results and status.
job=/run/ringroad-lab-tmt/$1
name=$1 lab=$2
shift 2
. "$job/job.environment"
sh -c '
  echo "$$ $(sed "s/.*) //" /proc/$$/stat | cut -d" " -f20)" >"$0/process"
  exec "$@"
' "$job" "$lab" "$@"
status=$?
echo "$status" >"$TMT_TEST_DATA/ringroad-lab.status"
"$lab" report "$name" --format tmt --output "$TMT_TEST_DATA/results.yaml" ||
  printf '[{"name": "/", "result": "error", "note": ["ringroad-lab ended with status %s, and there is no run"]}]\n' "$status" \
    >"$TMT_TEST_DATA/results.yaml"
