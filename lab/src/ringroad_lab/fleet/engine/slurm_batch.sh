#!/bin/bash
# The batch script of each job: finds out which bed it got, runs the program there, and says how that ended.
#
#   slurm_batch.sh FOLDER ENVIRONMENT BEDS [NAME NODES MACHINES]... PROGRAM...
#
# FOLDER is shared by the nodes; ENVIRONMENT is a file of the node, or empty; BEDS is the number of triples that follow.
# In FOLDER, NAME being the job's: NAME.toml what its beds are; NAME.nodes where it began, written once; NAME.exit how it ended; NAME.log what it said.

set -o pipefail
folder=$1 environment=$2 beds=$3
shift 3
name=$SLURM_JOB_NAME

# A file is there as a whole, or not at all.
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
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | LC_ALL=C sort | paste -sd ,) || refuse "the nodes of this job are not known"
bed='' machines=''
asked=$beds
for (( ; beds > 0; beds--)); do
    if [[ $2 == "$nodes" ]]; then
        bed=$1 machines=$3
    fi
    shift 3
done
if ((asked)); then
    [[ $bed ]] || refuse "the nodes $nodes are no bed: the features bed-NAME in slurm.conf and the machines in fleet.toml have to agree"
    [[ ",$machines," == *",generator=$SLURMD_NODENAME,"* ]] ||
        refuse "the job runs on $SLURMD_NODENAME, not on the generator of bed $bed: give the generator's node the first name of its bed"
    export RINGROAD_LAB_BED=$bed RINGROAD_LAB_MACHINES=$machines RINGROAD_LAB_FLEET=$folder/$name.toml
fi

# Figures of two beds would be in one run: only where the first copy of this job began may another go on.
printf '%s\n' "$nodes" >"$folder/$name.nodes.$SLURM_JOB_ID" || refuse "$folder cannot be written on $SLURMD_NODENAME"
ln "$folder/$name.nodes.$SLURM_JOB_ID" "$folder/$name.nodes" 2>/dev/null
rm -f "$folder/$name.nodes.$SLURM_JOB_ID"
read -r began <"$folder/$name.nodes"
[[ $began == "$nodes" ]] || refuse "this run began on the nodes $began, and cannot go on on $nodes"

if [[ $environment ]]; then
    [[ -r $environment ]] || refuse "the environment file $environment cannot be read on $SLURMD_NODENAME"
    set -a
    # shellcheck source=/dev/null
    . "$environment"
    set +a
fi

# SIGUSR1 comes to this script alone, and the program is told to end by one SIGTERM. A SIGTERM of Slurm's own comes to the program as well.
child='' is_early='' is_told=''
on_usr1() {
    is_told=1
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
    is_told=''
    wait "$child"
    status=$?
    [[ $is_told ]]
do :; done
# Where the end and a signal come at once, bash may have no status: it was told to end.
((status < 0)) && status=130
finish "$status"
