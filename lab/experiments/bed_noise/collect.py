"""Records trials of the same device, restarted many times: the samples that `spread.py` reads.

Run `python collect.py STARTS TRIALS > trials.jsonl` as root. After each start, without warm-up, it offers the Linux bridge TRIALS times the
load that the generator carries by itself, which is more than the bridge forwards; then it searches for the throughput. The sample is the
forwarded rate.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.method.interface import DisturbedRepeats, MethodContext
from ringroad_lab.method.throughput import ThroughputMethod, ThroughputSettings
from ringroad_lab.sandbox.private import Sandbox
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.setup.ceilings import Ceilings
from ringroad_lab.setup.test_setup import TestSetup
from ringroad_lab.trial import DisturbanceLimits, Load, TrialRequest, TrialResult

TRIAL_S = 0.5
SEARCH = ThroughputSettings(search_s=0.25, validation_s=0.5, warm_up_s=0.0)


def samples(starts: int, trials: int) -> Iterator[dict[str, object]]:
    """Measure in the sandbox."""
    frame = parse_frame_mix("64")
    scenario = Scenario(
        name="bed-noise",
        duts=(DutChoice(label="bridge", driver="linux-bridge"),),
        methods=(MethodChoice(name="throughput"),),
        frames=(frame,),
        huge_pages=False,
    )
    ceilings = Ceilings()
    for start in range(starts):
        with TestSetup(scenario, scenario.duts[0], ceilings=ceilings) as setup:
            ceiling = setup.ceiling(frame)
            assert ceiling is not None
            for number in range(trials):
                result = setup.generator.trial(TrialRequest(load=Load(frame=frame, rate_fps=ceiling.ceiling_fps), duration_s=TRIAL_S))
                yield {"start": start, "kind": "overload", "trial": number, "fps": round(result.forwarded_fps), **details(result)}
            searched: list[TrialResult] = []
            context = MethodContext(
                generator=setup.generator,
                frame=frame,
                max_fps=ceiling.ceiling_fps,
                is_max_generator_bound=True,
                bidirectional=True,
                flows=1,
                on_trial=searched.append,
                remaining_s=lambda _: None,
                repeats=DisturbedRepeats(DisturbanceLimits(extra_trials=0)),
            )
            outcome = ThroughputMethod(SEARCH).measure(context)
            found = outcome.metrics.get(outcome.headline)
            worst = max(searched, key=lambda each: each.disturbance.ratio if each.disturbance else 0.0)
            yield {"start": start, "kind": "search", "trial": len(searched), "fps": round(found.value) if found else 0, **details(worst)}


def details(result: TrialResult) -> dict[str, object]:
    """Return the fields of a trial besides the forwarded rate."""
    seen = result.disturbance
    assert seen is not None
    return {
        "valid": result.is_valid,
        "elapsed_s": round(seen.elapsed_s, 4),
        "steal_s": round(seen.steal_s, 4),
        "others_s": round(seen.others_s, 4),
        "wait_s": None if seen.wait_s is None else round(seen.wait_s, 4),
    }


def main() -> int:
    """Restart this program in a sandbox, and record there."""
    if sys.argv[1:2] == ["--inside"]:
        for sample in samples(int(sys.argv[2]), int(sys.argv[3])):
            print(json.dumps(sample), flush=True)
        return 0
    sandbox = Sandbox.start([sys.executable, __file__, "--inside", *sys.argv[1:3]])
    for line in sandbox.stdout:
        print(line, end="", flush=True)
    return sandbox.close()


if __name__ == "__main__":
    sys.exit(main())
