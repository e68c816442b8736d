"""Print what each port received, delivered and dropped, as CSV: python3 statistics_rows.py"""

import csv
import sys

import ringroad

rows = [
    {"port": port["name"], "driver": port["kind"]}
    | {key: value for key, value in port["counters"].items() if key != "drops"}
    | {"dropped": sum(port["counters"]["drops"].values())}
    for port in ringroad.Daemon().ports()
]
if rows:
    table = csv.DictWriter(sys.stdout, rows[0].keys())
    table.writeheader()
    table.writerows(rows)
