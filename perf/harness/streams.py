"""The studies of streams of tokens: which runs, in which order, and what one run is.

A cell is a pace of the mock and a number of streams. Within a cell the clients run one after the
other, as in `closedloop`. The server is `rivals/sseserver.c`, which spins on a core of its own and
writes down when each request came and each chunk left: the truth.
"""
import collections
import os
import tempfile

from .arrivals import quantile
from .clients import ENGINES, OURS
from .measure import CLIENT_GRACE_S, failure, heard, in_random_order, observe, output
from .openclients import micros
from .servers import Streams, shared_memory
from .streamclients import CLIENTS, RIVALS, SPIN, Load, prepare, program

QUESTIONS = {
    'streaming': 'What does a chunk of a stream cost `loadgen-uring`, beside minimal clients on '
                 'five engines, and how near to the truth is its TTFT?',
    'rivals-llm': 'Against a mock whose TTFT and gaps are known: what does each tool report, and '
                  'how many requests a second does it reach?',
}
DEFAULTS = {'streaming': {'repetitions': 7, 'seconds': 5},
            'rivals-llm': {'repetitions': 3, 'seconds': 15}}
CHUNKS = 64             # a response
# has_truth: every write is recorded. At saturation there would be too many.
Pace = collections.namedtuple('Pace', 'flags chunks has_truth what')
PACES = {
    'turn': Pace(['-r', '60000'], CHUNKS, True,
                 '60 000 chunks/s, one at a time, all streams in turn'),
    'own': Pace(['-f', '50000', '-g', '20000'], CHUNKS, True,
                'each stream its own: TTFT 50 ms, gaps of 20 ms'),
    'separate': Pace(['-r', '0'], CHUNKS, False, 'as fast as it is read, a write a chunk'),
    'coalesced': Pace(['-r', '0', '-k', '16'], CHUNKS, False,
                      'as fast as it is read, 16 chunks a write'),
    'short': Pace(['-r', '0'], 1, True, 'at once, one chunk a response'),
}
CELLS = {
    'streaming': [('turn', 256), ('turn', 1000), ('own', 256), ('separate', 256),
                  ('coalesced', 256)],
    'rivals-llm': [('own', 32), ('own', 256), ('short', 32)],
}
CLIENTS_OF = {'streaming': [OURS, SPIN, *ENGINES], 'rivals-llm': [OURS, SPIN, *RIVALS]}
RIVAL_GRACE_S = 60      # they take long to start and to sum up
RATE_MARGIN = 0.05      # of the requests at either end, left out of a rate
ROUNDS_LEAST = 20       # of all streams, for a rate without its ends

FIELDS = (
    'stream_study', 'repetition', 'pace', 'streams', 'client', 'attempt', 'verdict', 'seconds',
    'requests', 'chunks', 'events', 'window_s', 'rate', 'chunk_rate', 'user_s', 'sys_s', 'cpu_us',
    'true_count', 'true_ttft_p50_us', 'true_ttft_p99_us', 'true_gap_p50_us', 'true_gap_p99_us',
    'ttft_p50_us', 'ttft_p99_us', 'gap_p50_us', 'gap_p99_us', 'trust', 'own_count', 'own_events',
    'own_errors', 'rss_kib', 'first_recv_ms', 'server_cpu_s', 'background_cores', 'steal_cores',
    'switches', 'preemptions', 'pace_slips', 'send_faults', 'wall_s', 'exit')


def fields(_options):
    return FIELDS


def left_out(options):
    return [name for name in clients_of(options) if program(name) is None]


def clients_of(options):
    return options.clients or CLIENTS_OF[options.mode]


def plan(options):
    """[(cell, clients)] of one repetition, in the order of the tables."""
    there = [name for name in clients_of(options) if program(name) is not None]
    cells = [cell for cell in CELLS[options.mode]
             if not options.servers or cell[0] in options.servers]
    return [(cell, [name for name in there if fits(cell, name)]) for cell in cells]


def fits(cell, client):
    pace, _ = cell
    # A client at saturation never sleeps, and engines say nothing of TTFT.
    return not (client == SPIN and pace in ('separate', 'coalesced', 'short')) and not (
        client in ENGINES and pace == 'own')


def rows(options):
    """All runs, in the order in which they are made."""
    return in_random_order(plan, run, options)


def run(cell, client, options):
    """One row of raw.csv, without its verdict on the machine: see `measure.judge`."""
    (name, streams), pace = cell, PACES[cell[0]]
    grace_s = RIVAL_GRACE_S if client in RIVALS else CLIENT_GRACE_S
    row = dict.fromkeys(FIELDS) | {
        'stream_study': options.mode, 'pace': name, 'streams': streams, 'client': client,
        'seconds': options.seconds}
    with tempfile.TemporaryDirectory(prefix='perf-', dir=shared_memory()) as folder:
        load = Load(options.port, streams, options.seconds, options.client_cores,
                    pace.chunks, folder, name == 'own')
        if client in RIVALS:
            prepare(load)
        flags = [*pace.flags, '-n', str(pace.chunks)]
        life_s = options.seconds + grace_s + 15
        with Streams(options.port, options.server_core, life_s, flags, pace.has_truth) as server:
            seen, out, err = observe(server, CLIENTS[client].command(load), load.cores,
                                     load.seconds + grace_s)
            row['events'] = server.counts()['events']
            truth = server.truth()
        row |= {key: seen[key] for key in FIELDS if key in seen}
        row |= rates(row)
        row |= truths(*truth, pace.chunks, streams) if pace.has_truth else {}
        row |= heard(lambda text: CLIENTS[client].read(load, text), out)
    if row['exit'] not in CLIENTS[client].passes:
        row['verdict'] = failure(row['exit'], err)
    elif row['own_count'] == 0:
        row['verdict'] = 'the client saw no response to its end'
    return row


def rates(row):
    """By the counters: over the whole time between the first request and the last write."""
    cpu_s, chunks, window_s = row['user_s'] + row['sys_s'], row['chunks'], row['window_s']
    return {'cpu_us': cpu_s / chunks * 1e6 if chunks else None,
            'rate': row['requests'] / window_s if window_s else None,
            'chunk_rate': chunks / window_s if window_s else None}


def truths(at_ns, words, chunks, streams):
    """Columns from the mock's record: instants, and serial << 32 | chunks sent by then (0: the
    request came). TTFT and gaps are those of the responses that were sent whole."""
    writes = collections.defaultdict(list)      # serial: instants; the request's, then the writes'
    whole = set()
    for at, word in zip(at_ns, words):
        writes[word >> 32].append(at)
        if word & 0xffffffff == chunks:
            whole.add(word >> 32)
    begins = sorted(instants[0] for instants in writes.values())
    ttft = sorted(writes[serial][1] - writes[serial][0] for serial in whole)
    gaps = sorted(after - before for serial in whole
                  for before, after in zip(writes[serial][1:], writes[serial][2:]))
    columns = {'true_count': len(whole)}
    for name, ordered in (('ttft', ttft), ('gap', gaps)):
        for key, q in (('p50', 0.50), ('p99', 0.99)):
            columns[f'true_{name}_{key}_us'] = micros(quantile(ordered, q)) if ordered else None
    rate = steady_rate(begins, streams)
    return columns | ({'rate': rate} if rate else {})


def steady_rate(begins_ns, streams):
    """Requests a second in the middle of a run: a client's first request may come long before the
    others, and its last ones after the end of its load. None where the streams have begun too
    seldom to tell: they begin together."""
    if len(begins_ns) < streams * ROUNDS_LEAST:
        return None
    cut = int(len(begins_ns) * RATE_MARGIN)
    kept = begins_ns[cut:len(begins_ns) - cut]
    return (len(kept) - 1) / (kept[-1] - kept[0]) * 1e9


def tell(row):
    def number(key, form):
        return '-' if row[key] is None else format(row[key], form)

    print(f"{row['repetition']:>2} {row['pace']:9} {row['streams']:>4} {row['client']:20} "
          f"{number('rate', '8.1f')} req/s {number('chunk_rate', '9.0f')} chunks/s  "
          f"cpu {number('cpu_us', '6.2f')} us  "
          f"TTFT {number('ttft_p50_us', '.1f')} (true {number('true_ttft_p50_us', '.1f')}) us  "
          f"gap {number('gap_p50_us', '.1f')} (true {number('true_gap_p50_us', '.1f')}) us  "
          f"background {row['background_cores']:.2f}  {row['verdict']}", flush=True)


def describe(options):
    """What README.md of the study says about its runs."""
    cores = ', '.join(map(str, options.client_cores))
    text = [f'{options.repetitions} repetitions of {options.seconds} s a run; cells and clients in '
            f'random order (seed {options.seed}); each client, with all its processes, on core '
            f'{cores}, the mock on core {options.server_core}. A run with more than '
            f'{options.background} cores of foreign or stolen CPU is repeated, at most '
            f'{options.attempts} times.', '']
    text += [f'- {pace}, {streams} streams ({PACES[pace].what}): {", ".join(clients)}'
             for (pace, streams), clients in plan(options)]
    if left_out(options):
        text += ['', 'Left out, not installed: ' + ', '.join(left_out(options)) + '.']
    return text


def used(options):
    return sorted({client for _, clients in plan(options) for client in clients})


def versions(options):
    """What machine.txt says about the programs measured."""
    names = used(options)
    facts = {OURS: output(program(OURS), '--version')} if OURS in names else {}
    for name in RIVALS:
        if name in names:
            package = {'endpoints': 'inference-endpoint'}.get(name, name)
            python = os.path.join(os.path.dirname(program(name)), 'python')
            facts[name] = output(python, '-c', 'import importlib.metadata as m; '
                                 f'print(m.version({package!r}))')
    return facts


def check(options, complain):
    known = (('client', CLIENTS, options.clients), ('server', PACES, options.servers))
    for what, table, chosen in known:
        for name in chosen or []:
            if name not in table:
                complain(f'no {what} {name!r}; there are: ' + ', '.join(table))


def require(options):
    """Says what is missing before anything runs. What is not there is left out."""
    if left_out(options):
        print('not installed, left out: ' + ', '.join(left_out(options)), flush=True)
    if not used(options):
        raise SystemExit('nothing is left to run')
