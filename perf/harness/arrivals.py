"""What the arrivals at the recorder say about the client that sent them. Pure functions of numbers.

Instants and gaps are nanoseconds, results microseconds or shares. Undefined is None, never 0.
"""
import array
import bisect
import math
import statistics

START_SHARE = 0.1       # of a run, left out: calibration, ramps, cold caches
ARRIVALS_LEAST = 100    # fewer say nothing about a distribution
SHORT_GAP_SHARE = 0.2   # of the ideal gap: below it two requests left back to back
STRUCT_WORDS = 2        # of an entry of the record (kernel, recv) and of a log (due, sent)


def read_pairs(data):
    """The two columns of an array of pairs of u64, as rivals/fastserver.c and refsender.c write."""
    words = array.array('Q')
    words.frombytes(data)
    return words[0::STRUCT_WORDS], words[1::STRUCT_WORDS]


def quantile(ordered, share):
    """The value at a share of the sorted values, between two of them by proportion."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def settled(instants_ns):
    """The sorted instants without the start of the run."""
    begin = instants_ns[0] + START_SHARE * (instants_ns[-1] - instants_ns[0])
    return instants_ns[bisect.bisect_left(instants_ns, begin):]


def gaps_of(instants_ns):
    return [after - before for before, after in zip(instants_ns, instants_ns[1:])]


def variation(gaps_ns):
    """Standard deviation over mean: 0 = clockwork, 1 = Poisson, more = bursts."""
    mean = statistics.fmean(gaps_ns)
    return statistics.pstdev(gaps_ns, mean) / mean if mean else None


def ks_exponential(gaps_ns):
    """KS distance of the gaps to an exponential of the same mean; clockwork 0.63."""
    mean, count = statistics.fmean(gaps_ns), len(gaps_ns)
    if not mean:
        return None
    distance = 0.0
    for below, gap_ns in enumerate(sorted(gaps_ns)):
        expected = -math.expm1(-gap_ns / mean)
        distance = max(distance, expected - below / count, (below + 1) / count - expected)
    return distance


def serial_floor(rate, send_us, shards=1):
    """The KS distance that a sender cannot avoid which needs `send_us` for each request: the share
    of exponential gaps that are shorter than that. With shards each sends a part."""
    return -math.expm1(-rate / shards * send_us / 1e6)


def absolute_errors(instants_ns, due_ns):
    """How far the arrivals are from their schedule, sorted. A constant shift (the way of a request,
    the distance of two clocks) is taken out by the median."""
    first = instants_ns[0]      # first, as whole numbers: a double holds ns since 1970 to 256 only
    errors = [(at - first) - due for at, due in zip(instants_ns, due_ns)]
    middle = statistics.median(errors)
    return sorted(abs(error - middle) for error in errors)


def median_of_seconds(due_ns, errors_ns, share=0.99):
    """Median over the whole seconds of a run of each second's quantile: one stall of the machine
    spoils one second, and not the run."""
    seconds = {}
    for due, error in zip(due_ns, errors_ns):
        seconds.setdefault(int(due // 1e9), []).append(error)
    return statistics.median(quantile(sorted(part), share) for part in seconds.values())


def pacing(arrivals_ns, rate):
    """Columns of raw.csv about the gaps; nothing with too few arrivals."""
    instants = settled(sorted(arrivals_ns)) if arrivals_ns else []
    if len(instants) < ARRIVALS_LEAST or instants[0] == instants[-1]:
        return {}
    gaps = gaps_of(instants)
    ordered = sorted(gaps)
    achieved = len(gaps) / (instants[-1] - instants[0]) * 1e9
    short_ns = SHORT_GAP_SHARE * 1e9 / rate
    return {
        'rate': achieved, 'rate_error': achieved / rate - 1,
        'gap_p1_us': quantile(ordered, 0.01) / 1e3, 'gap_p50_us': quantile(ordered, 0.50) / 1e3,
        'gap_p99_us': quantile(ordered, 0.99) / 1e3, 'gap_cv': variation(gaps),
        'gap_short': bisect.bisect_left(ordered, short_ns) / len(ordered),
        'ks_exp': ks_exponential(gaps),
    }


def clockwork_error(arrivals_ns, rate):
    """Columns about the distance to equal gaps at the rate that was asked for."""
    instants = settled(sorted(arrivals_ns)) if arrivals_ns else []
    if len(instants) < ARRIVALS_LEAST:
        return {}
    errors = absolute_errors(instants, [i * 1e9 / rate for i in range(len(instants))])
    return {'off_p50_us': quantile(errors, 0.50) / 1e3, 'off_p99_us': quantile(errors, 0.99) / 1e3}


def against_log(arrivals_ns, due_ns, sent_ns):
    """Columns about a client that wrote its schedule down. Its start is not left out: every request
    counts against its own instant."""
    late = [sent - due for due, sent in zip(due_ns, sent_ns)]
    ordered = sorted(late)
    columns = {
        'late_p50_us': quantile(ordered, 0.50) / 1e3, 'late_p99_us': quantile(ordered, 0.99) / 1e3,
        'late_max_us': ordered[-1] / 1e3,
        'late_second_p99_us': median_of_seconds(due_ns, late) / 1e3,
    }
    if len(arrivals_ns) == len(due_ns):
        errors = absolute_errors(sorted(arrivals_ns), due_ns)
        columns |= {'off_p50_us': quantile(errors, 0.50) / 1e3,
                    'off_p99_us': quantile(errors, 0.99) / 1e3}
    return columns


def drift_ppm(arrivals_ns, rate, every=1):
    """How much faster (+) or slower a client's clock runs than the recorder's, parts per million.
    The arrivals were due at a constant rate, and each `every`-th of them was recorded.

    Medians of the error over the first and the last tenth: late requests are a minority of both.
    """
    tenth = len(arrivals_ns) // 10
    if tenth < 3:
        return None
    gap_ns = every * 1e9 / rate
    errors = [at - arrivals_ns[0] - i * gap_ns for i, at in enumerate(arrivals_ns)]
    shift_ns = statistics.median(errors[-tenth:]) - statistics.median(errors[:tenth])
    return -shift_ns / ((len(arrivals_ns) - tenth) * gap_ns) * 1e6
