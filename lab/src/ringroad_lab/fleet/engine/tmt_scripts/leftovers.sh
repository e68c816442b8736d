# On a generator: ends the run that a job left. The signals end the run after the current trial, then at once, then by force.

jobs=/run/ringroad-lab-tmt

start_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# Whether the process that a folder names still runs, and its PID was not reused.
is_there() {
  [ -r "$1/process" ] && read -r pid start <"$1/process" && [ -n "$start" ] && [ "$(start_of "$pid")" = "$start" ]
}

end_run() {
  for signal in TERM TERM KILL; do
    is_there "$1" || return 0
    kill -s "$signal" "$pid" || true
    timeout 60 tail --pid="$pid" -f /dev/null || true
  done
}

drop() {
  end_run "$1"
  rm -rf "$1"
}
