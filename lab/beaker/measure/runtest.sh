#!/bin/sh
# The laboratory's task inside a job of Beaker's. On the generator it runs `ringroad-lab`. On the device it lets the generator in by SSH, and
# waits until that has ended. Both meet at barriers of the laboratory's own: 1, the device can be reached; 2, the measurement has ended; 3, the
# device knows that.
#
# Parameters: RINGROAD_LAB_JOB, RINGROAD_LAB_ARGUMENTS, RINGROAD_LAB_BED, RINGROAD_LAB_FLEET_TOML, RINGROAD_LAB_ROLE, RINGROAD_LAB_RENDEZVOUS_SECRET,
# RINGROAD_LAB_MEET_WITHIN_S. From Beaker: GENERATOR and DUT, the machines of these roles; REBOOTCOUNT, KILLTIMEOVERRIDE.
set -u

here=$(cd "$(dirname "$0")" && pwd)
role=${RINGROAD_LAB_ROLE:?the job does not say which role this machine has}
test_name=${RSTRNT_TASKNAME:-/ringroad/measure}
meet_s=${RINGROAD_LAB_MEET_WITHIN_S:-3600}
whole_s=${KILLTIMEOVERRIDE:-86400}
meeting_port=${RINGROAD_LAB_MEETING_PORT:-6777}
handover_port=${RINGROAD_LAB_HANDOVER_PORT:-6778}
authorized=${RINGROAD_LAB_AUTHORIZED_KEYS:-$HOME/.ssh/authorized_keys}
# Outlives a restart of the machine.
meeting=${RINGROAD_LAB_MEETING_STATE:-/var/tmp/ringroad-lab-meeting-$RINGROAD_LAB_JOB}
folder=$(mktemp -d) || exit 1
started=
made=

# report RESULT STATUS MESSAGE: to Beaker where it is there, else to people.
report() {
    echo "$3" >"$folder/message"
    if command -v rstrnt-report-result >/dev/null; then
        rstrnt-report-result -o "$folder/message" "$test_name/exit-status" "$1" "$2"
    fi
    echo "$test_name: $1 $2: $3"
}

# What this task started ends with it, and what it changed is put back.
leave() {
    [ -z "$started" ] || kill $started 2>/dev/null
    if [ "$role" = generator ]; then rm -f "$meeting" ${made:+"$made"}; else forget_key; fi
    rm -rf "$folder"
}

# A job that is cancelled, or a deadline: the others are told, so that no machine stays reserved for nothing.
give_up() {
    if [ -s "$folder/rendezvous" ]; then
        python3 "$folder/rendezvous" abort "$role: $1" --as "$role" --deadline 20
        # The server is ours: whoever was between two questions asks within this time.
        [ "$role" != generator ] || sleep 6
    fi
    report "$2" "$3" "$1"
    exit 0
}

# arrive BARRIER SECONDS
arrive() {
    python3 "$folder/rendezvous" arrive "$1" --as "$role" --deadline "$2"
}

forget_key() {
    [ -s "$folder/key" ] && [ -f "$authorized" ] || return 0
    kept=$(mktemp "$authorized.XXXXXX") || return 0
    grep -vxFf "$folder/key" "$authorized" >"$kept"
    cat "$kept" >"$authorized"
    rm -f "$kept"
}

first_word() {
    set -- $1
    echo "${1:-}"
}

measure() {
    if [ "${REBOOTCOUNT:-0}" -gt 0 ]; then
        [ -z "$dut" ] || serve_meeting
        give_up "the generator restarted while it measured" FAIL 1
    fi
    # The store's URL, say, which may hold a password: parameters of jobs are for everybody to read.
    if [ -r "${RINGROAD_LAB_ENVIRONMENT:-/etc/ringroad-lab/environment}" ]; then
        set -a
        . "${RINGROAD_LAB_ENVIRONMENT:-/etc/ringroad-lab/environment}"
        set +a
    fi
    # What the run has to know of its bed; a file that is there knows better.
    config=${RINGROAD_LAB_CONFIG:-${XDG_CONFIG_HOME:-$HOME/.config}/ringroad-lab}
    if [ -n "${RINGROAD_LAB_FLEET_TOML:-}" ] && [ ! -e "$config/fleet.toml" ]; then
        mkdir -p "$config" && made="$config/fleet.toml" && echo "$RINGROAD_LAB_FLEET_TOML" | base64 -d >"$made"
    fi
    if ! command -v ringroad-lab >/dev/null; then
        give_up "ringroad-lab is not installed: name its package and repository in the recipe" FAIL 3
    fi
    # Quoted as a shell reads it.
    eval "set -- $RINGROAD_LAB_ARGUMENTS"
    if [ -n "$dut" ]; then
        meet || give_up "the device's machine did not come within $meet_s s" FAIL 1
        set -- "$@" "--set=host.dut.address=\"$dut\"" "--set=host.dut.key_file=\"$folder/id\"" \
            "--set=host.dut.known_hosts_file=\"$folder/known_hosts\""
        [ -z "${RINGROAD_LAB_SSH_PORT:-}" ] || set -- "$@" "--set=host.dut.port=$RINGROAD_LAB_SSH_PORT"
    fi
    ringroad-lab "$@" >"$folder/ringroad-lab.log" 2>&1 &
    run=$!
    started="$started $run"
    wait $run
    status=$?
    cat "$folder/ringroad-lab.log"
    if command -v rstrnt-report-log >/dev/null; then
        rstrnt-report-log -l "$folder/ringroad-lab.log"
    fi
    if [ -n "$dut" ]; then
        arrive 2 "$meet_s" && arrive 3 60
    fi
    case $status in
        0) report PASS 0 "ringroad-lab ended with status 0" ;;
        4 | 6) report WARN $status "ringroad-lab ended with status $status: not every figure is valid and conclusive" ;;
        *) report FAIL $status "ringroad-lab ended with status $status: $(tail -n 1 "$folder/ringroad-lab.log")" ;;
    esac
}

serve_meeting() {
    ringroad-lab rendezvous client >"$folder/rendezvous" || return 1
    ringroad-lab rendezvous serve generator dut --state "$meeting" --port "$meeting_port" &
    started="$started $!"
}

# Hand the device what it needs, meet it, and learn its key.
meet() {
    ssh-keygen -q -t ed25519 -N '' -C "ringroad-lab $RINGROAD_LAB_JOB" -f "$folder/id" || return 1
    serve_meeting || return 1
    python3 "$here/handover.py" offer "$handover_port" "$folder/id.pub" "$folder/rendezvous" &
    offering=$!
    started="$started $offering"
    arrive 1 "$meet_s" || return 1
    kill $offering
    # Whoever answers at the device's address now is believed to be it, as by Beaker itself.
    ssh-keyscan -p "${RINGROAD_LAB_SSH_PORT:-22}" "$dut" >"$folder/known_hosts" 2>/dev/null
    [ -s "$folder/known_hosts" ]
}

be_measured() {
    python3 "$here/handover.py" take "$generator:$handover_port" "$meet_s" "$folder" ||
        give_up "the generator's machine did not come within $meet_s s" FAIL 1
    mkdir -p "$(dirname "$authorized")" && chmod 700 "$(dirname "$authorized")"
    forget_key
    (umask 077 && cat "$folder/key" >>"$authorized") || give_up "$authorized cannot be written" FAIL 1
    arrive 1 "$meet_s" || give_up "the generator did not meet this machine" FAIL 1
    arrive 2 "$whole_s" || give_up "the generator ended early" FAIL 1
    arrive 3 20
    report PASS 0 "the generator has ended"
}

trap leave EXIT
trap 'give_up "the task was ended" FAIL 1' TERM INT HUP
generator=$(first_word "${GENERATOR:-}")
dut=$(first_word "${DUT:-}")
case $role in
    generator)
        # The server of the rendezvous is on this machine.
        RINGROAD_LAB_RENDEZVOUS="127.0.0.1:$meeting_port"
        export RINGROAD_LAB_RENDEZVOUS
        measure
        ;;
    dut)
        RINGROAD_LAB_RENDEZVOUS="$generator:$meeting_port"
        export RINGROAD_LAB_RENDEZVOUS
        be_measured
        ;;
    *) report FAIL 1 "there is no role '$role': generator or dut" ;;
esac
