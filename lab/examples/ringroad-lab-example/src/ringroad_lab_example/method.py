"""A method of one trial."""

from typing import ClassVar

from ringroad_lab.method.interface import MethodSettings
from ringroad_lab.method.trial_series import TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome


class OneTrialSettings(TrialSettings):
    """Settings, each with its default."""

    rate_fps: float = 1000.0
    trial_s: float = 0.2


class OneTrial(TrialMethod):
    """Offers one load once."""

    title = "Loss of a small load (an example)"
    settings_type: ClassVar[type[MethodSettings]] = OneTrialSettings
    settings: OneTrialSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """Tell the time of one trial."""
        return self.settings.trial_s + trial_overhead_s

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Offer the load."""
        trial = series.run(self.settings.rate_fps, self.settings.trial_s, "example").result
        loss = Metric(value=trial.loss_ratio, unit="ratio", better=Better.LOWER)
        return Outcome(status=MeasurementStatus.OK, headline="loss_ratio", metrics={"loss_ratio": loss})
