from __future__ import annotations

from itertools import islice, pairwise

from fairlead.traces import Wrap, generate, load
from tests.traces.samples import SIA_PHILLY


def test_arrivals_number_jobs_in_order_and_give_true_durations_apart(written):
    trace = generate("philly", jobs=10_000)
    ids = []
    for job, duration_s in trace.arrivals(restart_s=7.0):
        ids.append(job.id)
        assert not hasattr(job, "duration_s")
        assert duration_s > 0
        assert job.profile.restart_s == 7.0
    assert ids == list(range(10_000))


def test_a_wrapped_trace_goes_on_for_ever_at_its_own_gaps(written):
    trace = load(written(SIA_PHILLY))
    jobs = [job for job, _ in islice(trace.arrivals(), 7)]
    assert [job.name for job in jobs] == ["0", "1", "2", "0+1", "1+1", "2+1", "0+2"]
    gaps = list(islice(Wrap(2.0, 1).gaps_s(), 4))
    submits = [job.submit_s for job in jobs]
    assert [b - a for a, b in pairwise(submits[2:])] == gaps


def test_head_keeps_the_first_jobs():
    trace = generate("poisson", jobs=100)
    assert trace.head(3).frame.equals(trace.frame.head(3))
