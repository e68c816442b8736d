#!/bin/bash
# The batch script of each job: identifies its bed, runs the program there, and records the exit status.
#
#   slurm_batch.sh FOLDER ENVIRONMENT BEDS [NAME NODES MACHINES]... PROGRAM...
#
# FOLDER is shared by the nodes. ENVIRONMENT is a file on the node, or empty. BEDS is the number of triples that follow.
# Files in FOLDER, where NAME is the job's: NAME.toml: its beds; NAME.nodes: where it began, written once; NAME.exit: its exit status;
# NAME.log: its output.

set -o pipefail
folder=$1 environment=$2 beds=$3
shift 3
name=$SLURM_JOB_NAME

# mv makes the file appear complete or not at all.
finish() {
    printf '%s %s\n' "$SLURM_JOB_ID" "$1" >"$folder/$name.exit.$SLURM_JOB_ID" &&
        mv -f "$folder/$name.exit.$SLURM_JOB_ID" "$folder/$name.exit"
    exit "$1"
}

refuse() {
    printf '%s\n' "$1"
    finish 1
}

rm -f "$folder/$name.exit"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | LC_ALL=C sort | paste -sd ,) || refuse "the nodes of this job are unknown"
bed='' machines=''
requested=$beds
for (( ; beds > 0; beds--)); do
    if [[ $2 == "$nodes" ]]; then
        bed=$1 machines=$3
    fi
    shift 3
done
if ((requested)); then
    [[ $bed ]] || refuse "the nodes $nodes are not a bed: the features bed-NAME in slurm.conf and the machines in fleet.toml must agree"
    [[ ",$machines," == *",generator=$SLURMD_NODENAME,"* ]] ||
        refuse "the job runs on $SLURMD_NODENAME, not on the generator of bed $bed: the generator's node must be the first by name"
    export RINGROAD_LAB_BED=$bed RINGROAD_LAB_MACHINES=$machines RINGROAD_LAB_FLEET=$folder/$name.toml
fi

# A run must not mix results of two beds: another copy of this job can continue only where the first one began.
printf '%s\n' "$nodes" >"$folder/$name.nodes.$SLURM_JOB_ID" || refuse "cannot write to $folder on $SLURMD_NODENAME"
ln "$folder/$name.nodes.$SLURM_JOB_ID" "$folder/$name.nodes" 2>/dev/null
rm -f "$folder/$name.nodes.$SLURM_JOB_ID"
read -r began <"$folder/$name.nodes"
[[ $began == "$nodes" ]] || refuse "this run began on the nodes $began, and cannot continue on $nodes"

if [[ $environment ]]; then
    [[ -r $environment ]] || refuse "the environment file $environment cannot be read on $SLURMD_NODENAME"
    set -a
    # shellcheck source=/dev/null
    . "$environment"
    set +a
fi

# Only this script gets SIGUSR1; it then sends the program one SIGTERM. A SIGTERM from Slurm itself goes to the program as well.
child='' is_early='' is_signalled=''
on_usr1() {
    is_signalled=1
    if [[ $child ]]; then kill -TERM "$child" 2>/dev/null; else is_early=1; fi
}
trap '' TERM
trap on_usr1 USR1
(
    trap - TERM USR1
    exec "$@"
) &
child=$!
[[ $is_early ]] && kill -TERM "$child" 2>/dev/null
while
    is_signalled=''
    wait "$child"
    status=$?
    [[ $is_signalled ]]
do :; done
# If the end and a signal coincide, bash may have no status: the program was signalled to stop.
((status < 0)) && status=130
finish "$status"
