"""Keep latency-critical work safe on shared GPUs: the states of a GPU and the control of launch rates.

MuxFlow's GPU-level protection as pure logic, fed by the node agent with what it measures and by the simulator with what
it simulates: `states` says which GPUs may host offline work, `rate` how fast it may go, `evict` how it is taken off,
`faults` what a log line or an Xid means, `config` holds every number.
"""

from fairlead.policy.guarding.config import EvictionConfig, GuardConfig, LatencyConfig, RateConfig
from fairlead.policy.guarding.evict import Action, Backoff, Eviction, Step
from fairlead.policy.guarding.faults import Fault, Remedy, classify_line, classify_xid
from fairlead.policy.guarding.rate import LatencySignal, LaunchRate, Pressure
from fairlead.policy.guarding.sample import Sample
from fairlead.policy.guarding.states import GpuGuard, State, Transition

__all__ = [
    "Action",
    "Backoff",
    "Eviction",
    "EvictionConfig",
    "Fault",
    "GpuGuard",
    "GuardConfig",
    "LatencyConfig",
    "LatencySignal",
    "LaunchRate",
    "Pressure",
    "RateConfig",
    "Remedy",
    "Sample",
    "State",
    "Step",
    "Transition",
    "classify_line",
    "classify_xid",
]
