# Of a generator: ends what a job began and left. A run ends after the trial under way, then at once, then by force.

jobs=/run/ringroad-lab-tmt

start_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# Whether the process that a folder names is there, and no other has its number by now.
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
