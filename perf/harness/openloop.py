"""The open-loop studies: which runs, in which order, and what one run is.

A cell is a rate. Within a cell the clients run one after the other, as in `closedloop`. The server
is always the recorder, which spins on a core of its own.
"""
import os
import random
import tempfile
import time

from . import arrivals
from .clients import OURS, product_path
from .measure import CLIENT_GRACE_S, attempts, failure, heard, observe, output
from .openclients import (
    CLIENTS, PATTERNS, REFERENCE, RIVALS, TIMERS, Load, find, is_there, name_of, prepare,
    read_clock, report_of)
from .servers import Recorder, cpu_s_of, shared_memory

QUESTIONS = {
    'precision': 'How precisely does `loadgen-uring` keep its schedule, seen by an independent '
                 'recorder, beside wrk2, oha, vegeta and a sender that only watches the clock?',
    'rate': 'Up to which rate does `loadgen-uring` keep its schedule so well that its own verdict '
            'is not FAIL?',
    'idle': 'What does waiting for the next instant cost at low rates?',
    'soak': 'Does `loadgen-uring` stay on time and keep its memory over a long run?',
}
DEFAULTS = {
    'precision': {'repetitions': 3, 'seconds': 8, 'rates': [1_000, 10_000, 50_000]},
    'rate': {'repetitions': 3, 'seconds': 5, 'rates': list(range(20_000, 100_000, 10_000))},
    'idle': {'repetitions': 3, 'seconds': 10, 'rates': [100, 1_000]},
    'soak': {'repetitions': 1, 'seconds': 600, 'rates': [10_000]},
}
CONNECTIONS = {100: 8, 1_000: 16}       # by rate; any other: a few more than the rate can keep busy
CONNECTIONS_SLOW, CONNECTIONS_FAST, FAST_RATE = 64, 128, 50_000
CORES_OF_DEDICATED = 4      # on fewer a core that only watches the clock is not to spare

RUN_FIELDS = (
    'study', 'repetition', 'rate_asked', 'client', 'gaps', 'attempt', 'verdict', 'seconds',
    'connections', 'shards', 'requests', 'recorded', 'unstamped', 'rate', 'rate_error', 'gap_p1_us',
    'gap_p50_us', 'gap_p99_us', 'gap_cv', 'gap_short', 'ks_exp', 'off_p50_us', 'off_p99_us',
    'late_p50_us', 'late_p99_us', 'late_second_p99_us', 'late_max_us', 'service_p50_us',
    'service_p99_us', 'client_cores', 'busy', 'user_s', 'sys_s', 'rss_kib', 'first_recv_ms',
    'trust', 'trust_faults', 'schedule_hash', 'own_count', 'own_errors', 'starved', 'server_cpu_s',
    'background_cores', 'steal_cores', 'switches', 'preemptions', 'send_faults', 'wall_s', 'exit')
SOAK_FIELDS = (
    'study', 'client', 'rate_asked', 'seconds', 'verdict', 'at_s', 'rss_kib', 'requests', 'rate',
    'client_cores', 'rate_error', 'drift_ppm', 'off_p50_us', 'off_p99_us', 'late_p50_us',
    'late_p99_us', 'late_second_p99_us', 'late_max_us', 'trust', 'trust_faults', 'product_clock',
    'own_count', 'own_errors', 'background_cores', 'steal_cores', 'preemptions', 'wall_s', 'exit')
SOAK_STEP_S = 10
SOAK_EVERY = 100        # of the arrivals is recorded: enough for a drift, 1 MB an hour and 1000/s
RECORD_SLACK = 1.3      # a client may send more than it was asked for


def fields(options):
    return SOAK_FIELDS if options.mode == 'soak' else RUN_FIELDS


def clients_of(options):
    """The clients of a study, those included that are not installed here."""
    timers = [timer for timer in TIMERS if timer != 'dedicated' or options.timer_cores]
    ours = [name_of(pattern, timer) for pattern in PATTERNS for timer in timers]
    by_mode = {
        'precision': [*REFERENCE.values(), *ours, *RIVALS],
        'rate': [name_of('poisson', timer) for timer in timers],
        'idle': [name_of('poisson', 'hybrid'), *RIVALS],
        'soak': [name_of('constant', 'hybrid')],
    }
    return options.clients or by_mode[options.mode]


def left_out(options):
    return [name for name in clients_of(options) if not is_there(name)]


def plan(options):
    """[(rate, clients)] of one repetition, in the order of the tables."""
    there = [name for name in clients_of(options) if is_there(name)]
    return [(rate, list(there)) for rate in options.rates]


def rows(options):
    """All runs, in the order in which they are made."""
    shuffle = random.Random(options.seed).shuffle
    for repetition in range(1, options.repetitions + 1):
        cells = plan(options)
        shuffle(cells)
        for rate, clients in cells:
            shuffle(clients)
            for client in clients:
                if options.mode == 'soak':
                    yield from soak(rate, client, options)
                    continue
                for row in attempts(lambda: run(rate, client, repetition, options), options):
                    yield row


def connections_at(rate, options):
    if options.connections:
        return options.connections[0]
    return CONNECTIONS.get(rate, CONNECTIONS_FAST if rate >= FAST_RATE else CONNECTIONS_SLOW)


def load_at(rate, client, repetition, folder, options):
    timer_core = options.timer_cores[0] if client.endswith('dedicated') else None
    load = Load(options.port, rate, options.seconds, connections_at(rate, options),
                options.client_cores, timer_core, options.seed + repetition, folder)
    prepare(load)
    return load


def cores_of(load):
    return [*load.cores, *([] if load.timer_core is None else [load.timer_core])]


def recorder(load, options, every=1):
    """Room for what was asked for and more; a client that fills it is found by the counts."""
    entries = int(load.rate * load.seconds * RECORD_SLACK / every) + 1000
    life_s = options.seconds + CLIENT_GRACE_S + 15
    return Recorder(options.port, options.server_core, life_s, entries, every)


def run(rate, client, repetition, options):
    """One row of raw.csv, without its verdict on the machine: see `measure.judge`."""
    with tempfile.TemporaryDirectory(prefix='perf-', dir=shared_memory()) as folder:
        load = load_at(rate, client, repetition, folder, options)
        with recorder(load, options) as server:
            seen, out, err = observe(server, CLIENTS[client].command(load), cores_of(load),
                                     load.seconds + CLIENT_GRACE_S)
            stamps_ns, _ = server.arrivals()
        row = dict.fromkeys(RUN_FIELDS) | {key: seen[key] for key in RUN_FIELDS if key in seen}
        stamped_ns = [stamp for stamp in stamps_ns if stamp]
        row |= {
            'study': options.mode, 'repetition': repetition, 'rate_asked': rate, 'client': client,
            'gaps': CLIENTS[client].gaps, 'seconds': load.seconds, 'connections': load.connections,
            'shards': len(load.cores), 'recorded': len(stamps_ns),
            'unstamped': len(stamps_ns) - len(stamped_ns),
            'client_cores': cores_used(seen),
            **arrivals.pacing(stamped_ns, rate),
        }
        row |= heard(lambda text: CLIENTS[client].read(load, text, stamped_ns), out)
    return row | {'verdict': fault(row, client, err)}


def cores_used(seen):
    return (seen['user_s'] + seen['sys_s']) / seen['wall_s']


def fault(row, client, err):
    """Why a run says nothing about its client, apart from the machine; None if it does."""
    if row['exit'] not in CLIENTS[client].passes:
        return failure(row['exit'], err)
    if row['recorded'] < row['requests']:
        return 'the record is full'
    if row['unstamped']:
        return f"{row['unstamped']} arrivals without a kernel stamp"
    return row['verdict']


class Sampler:
    """Looks at a running client every few seconds, from outside."""

    def __init__(self, server, base, step_s):
        self.server, self.base, self.step_s = server, base, step_s
        self.rows = []

    def __call__(self, launcher):
        start_s = time.monotonic()
        before = {'at_s': 0.0, 'requests': self.server.counts()['requests'], 'cpu_s': 0.0}
        while launcher.poll() is None:
            next_s = start_s + self.step_s * (len(self.rows) + 1)
            time.sleep(max(0, next_s - time.monotonic()))
            now = look(launcher.pid, self.server)
            if now is None:     # it has ended meanwhile
                return
            now['at_s'] = time.monotonic() - start_s
            step_s = now['at_s'] - before['at_s']
            row = self.base | {
                'at_s': now['at_s'], 'rss_kib': now['rss_kib'], 'requests': now['requests'],
                'rate': (now['requests'] - before['requests']) / step_s,
                'client_cores': (now['cpu_s'] - before['cpu_s']) / step_s, 'verdict': 'sample'}
            self.rows.append(row)
            tell_soak(row)
            before = now


def look(launcher_pid, server):
    """Memory and CPU of the launcher's child; None if there is none."""
    try:
        with open(f'/proc/{launcher_pid}/task/{launcher_pid}/children') as children:
            pid = int(children.read().split()[0])
        with open(f'/proc/{pid}/status') as status:
            facts = dict(line.split(':', 1) for line in status)
        return {'rss_kib': int(facts['VmRSS'].split()[0]), 'cpu_s': cpu_s_of(pid),
                'requests': server.counts()['requests']}
    except (OSError, IndexError, KeyError):
        return None


def soak(rate, client, options):
    """The samples of one long run, then one row about the whole of it."""
    base = dict.fromkeys(SOAK_FIELDS) | {
        'study': options.mode, 'client': client, 'rate_asked': rate, 'seconds': options.seconds}
    with tempfile.TemporaryDirectory(prefix='perf-', dir=shared_memory()) as folder:
        load = load_at(rate, client, 0, folder, options)
        with recorder(load, options, SOAK_EVERY) as server:
            sampler = Sampler(server, base, min(SOAK_STEP_S, max(1, options.seconds // 10)))
            seen, out, err = observe(server, CLIENTS[client].command(load), cores_of(load),
                                     load.seconds + CLIENT_GRACE_S, sampler)
            _, received_ns = server.arrivals()
        row = base | {key: seen[key] for key in SOAK_FIELDS if key in seen}
        row |= {'at_s': seen['wall_s'], 'client_cores': cores_used(seen),
                'rate': (seen['requests'] - 1) / seen['window_s'] if seen.get('window_s') else None,
                'drift_ppm': arrivals.drift_ppm(received_ns, rate, SOAK_EVERY),
                'product_clock': read_clock(report_of(load))}
        row |= {key: value for key, value in
                heard(lambda text: CLIENTS[client].read(load, text, []), out).items()
                if key in SOAK_FIELDS}
    row['rate_error'] = row['rate'] / rate - 1 if row['rate'] else None
    if seen['exit'] not in CLIENTS[client].passes:
        row['verdict'] = failure(seen['exit'], err)
    elif row['own_errors']:
        row['verdict'] = f"the client counted {row['own_errors']} errors"
    row['verdict'] = row['verdict'] or 'kept'
    yield from [*sampler.rows, row]


def tell(row):
    if row['study'] == 'soak':
        if row['verdict'] != 'sample':
            tell_soak(row)
        return
    print(f"{row['repetition']:>2} {row['rate_asked']:>7}/s {row['client']:32} "
          f"n={row['requests']:<7} rate {said(row['rate_error'], '+.2%')}  "
          f"cv {said(row['gap_cv'], '.3f')}  ks {said(row['ks_exp'], '.3f')}  "
          f"late p50/p99 {said(row['late_p50_us'], '.2f')}/{said(row['late_p99_us'], '.1f')} us  "
          f"off {said(row['off_p50_us'], '.2f')}/{said(row['off_p99_us'], '.1f')} us  "
          f"cores {said(row['client_cores'], '.2f')}  trust {row['trust'] or '-'}  "
          f"background {row['background_cores']:.2f}  {row['verdict']}", flush=True)


def tell_soak(row):
    print(f"{row['at_s']:7.1f} s  {row['client']}  rss {row['rss_kib'] / 1024:.2f} MiB  "
          f"{said(row['rate'], '.1f')}/s  cores {said(row['client_cores'], '.3f')}  "
          f"drift {said(row['drift_ppm'], '+.3f')} ppm  {row['verdict']}", flush=True)


def said(value, form):
    return '-' if value is None else format(value, form)


def describe(options):
    """What README.md of the study says about its runs."""
    cores = ', '.join(map(str, options.client_cores))
    text = [f'{options.repetitions} repetitions of {options.seconds} s a run; rates and clients in '
            f'random order (seed {options.seed}; the schedules of repetition r have seed '
            f'{options.seed} + r); client on core {cores}, recorder on core {options.server_core}. '
            f'A run with more than {options.background} cores of foreign or stolen CPU is '
            f'repeated, at most {options.attempts} times.', '']
    text += [f'- {rate}/s over {connections_at(rate, options)} connections: {", ".join(clients)}'
             for rate, clients in plan(options)]
    if left_out(options):
        text += ['', 'Left out, not installed: ' + ', '.join(left_out(options)) + '.']
    if not options.timer_cores:
        text += ['', 'This machine has no core to spare for a timer: `--timer dedicated` is not '
                     'part of this study.']
    return text


def used(options):
    return sorted({client for _, clients in plan(options) for client in clients})


def line_of(text):
    """What a program says of its version, without its help."""
    return ' '.join(text.split('Usage')[0].split())


VERSION_OF = {'wrk2': '-v', 'oha': '--version', 'vegeta': '-version'}


def versions(options):
    """What machine.txt says about the programs measured."""
    clients = used(options)
    facts = {name: line_of(output(find(name), flag))
             for name, flag in VERSION_OF.items() if name in clients}
    if any(name.startswith(OURS) for name in clients):
        facts[OURS] = output(product_path(), '--version')
    return facts


def check(options, complain):
    for name in options.clients or []:
        if name not in CLIENTS:
            complain(f'no client {name!r}; there are: ' + ', '.join(CLIENTS))
    if options.servers:
        complain(f'{options.mode} has its own server')
    if len(options.connections or [0]) > 1:
        complain('an open-loop study takes one number of connections')
    if min(options.rates) < 1:
        complain('rates start at 1')


def require(options):
    """Says what is missing before anything runs. A rival that is not there is left out."""
    if left_out(options):
        print('not installed, left out: ' + ', '.join(left_out(options)), flush=True)
    if not used(options):
        raise SystemExit('nothing is left to run')
