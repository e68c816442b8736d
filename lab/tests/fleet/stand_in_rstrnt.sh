#!/bin/sh
# A STAND-IN for restraint's rstrnt-report-result and rstrnt-report-log, for tests: appends the reports to $STAND_IN_RESULTS.
set -eu
case ${0##*/} in
    rstrnt-report-result)
        # rstrnt-report-result -o FILE TEST RESULT SCORE
        printf '%s %s %s %s: %s\n' "$RINGROAD_LAB_ROLE" "$3" "$4" "$5" "$(cat "$2")" >>"$STAND_IN_RESULTS"
        ;;
    rstrnt-report-log)
        # rstrnt-report-log -l FILE
        cp "$2" "$STAND_IN_RESULTS.${2##*/}"
        ;;
esac
