"""Have the generator send, and read its verdict: python3 generate_load.py vale0:a vale0:b 100kpps"""

import json
import subprocess
import sys

source, sink, rate = sys.argv[1:]
command = ["ringroad", "--json", "gen", source, "--to", sink, "--rate", rate, "--duration", "1"]
lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
report = json.loads(lines[-1])
print(json.dumps(report, indent=2))
