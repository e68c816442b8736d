"""All methods, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ringroad_lab.method.address_caching import AddressCachingMethod
from ringroad_lab.method.back_to_back import BackToBackMethod
from ringroad_lab.method.forwarding_rate import ForwardingRateMethod
from ringroad_lab.method.frame_loss import FrameLossMethod
from ringroad_lab.method.interface import Method
from ringroad_lab.method.latency import LatencyMethod
from ringroad_lab.method.learning_rate import LearningRateMethod
from ringroad_lab.method.message_size import MessageSizeMethod
from ringroad_lab.method.mlrsearch import MlrSearchMethod
from ringroad_lab.method.processor_cost import ProcessorCostMethod
from ringroad_lab.method.recovery import RecoveryMethod
from ringroad_lab.method.soak import SoakMethod
from ringroad_lab.method.throughput import ThroughputMethod

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        method.name: method
        for method in (
            ThroughputMethod,
            FrameLossMethod,
            LatencyMethod,
            BackToBackMethod,
            RecoveryMethod,
            ForwardingRateMethod,
            AddressCachingMethod,
            LearningRateMethod,
            MlrSearchMethod,
            SoakMethod,
            ProcessorCostMethod,
            MessageSizeMethod,
        )
    }
)
"""In the order of the RFCs; then what no RFC has."""
