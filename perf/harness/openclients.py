"""The clients of the open-loop studies: the command line of each, and what it says of itself.

When requests arrived comes from the recorder, CPU from the kernel. From here come a client's own
errors, for the reference sender the schedule that it drew, and for `loadgen-uring` how late it was
by its own account.
"""
import collections
import glob
import json
import os
import shutil
import statistics

from .arrivals import against_log, clockwork_error, read_pairs
from .clients import OURS, product_path, read_wrk, url
from .measure import core_list
from .servers import BUILD

Load = collections.namedtuple('Load', 'port rate seconds connections cores timer_core seed folder')
# command(load); read(load, stdout, arrivals_ns) -> columns; gaps: what the client was asked for;
# passes: statuses of a run that counts.
Client = collections.namedtuple('Client', 'command read gaps passes', defaults=[(0,)])

UNTRUSTED = 6       # our status for "complete, but do not believe it": a result of a study


def reference(*flags):
    def command(load):
        return [os.path.join(BUILD, 'refsender'), *flags, '-r', str(load.rate),
                '-d', str(load.seconds), '-c', str(load.connections), '-p', str(load.port),
                '-s', str(load.seed), '-o', log_of(load)]
    return command


def log_of(load):
    return os.path.join(load.folder, 'log')


def read_reference(load, text, arrivals_ns):
    said = json.loads(text)
    with open(log_of(load), 'rb') as log:
        due_ns, sent_ns = read_pairs(log.read()[8:])
    return {'own_count': said['requests'], 'own_errors': said['errors'],
            'starved': said['starved'], **against_log(arrivals_ns, due_ns, sent_ns)}


def wrk2(load):
    return [find('wrk2'), f'-t{len(load.cores)}', f'-c{load.connections}', f'-d{load.seconds}s',
            '-R', str(load.rate), '-L', url(load)]


def read_wrk2(load, text, arrivals_ns):
    # What it calls latency counts from a schedule of its own, and is not compared.
    said = read_wrk(text, with_percentiles=False)
    return said | clockwork_error(arrivals_ns, load.rate)


def oha(load):
    return [find('oha'), '--no-tui', '--worker-threads', str(len(load.cores)),
            '-c', str(load.connections), '-z', f'{load.seconds}s', '-q', str(load.rate),
            '--output-format', 'json', url(load)]


def read_oha(load, text, arrivals_ns):
    said = json.loads(text)
    errors = {kind: count for kind, count in said['errorDistribution'].items()
              if kind != 'aborted due to deadline'}     # what was in flight at the end
    return {'own_count': sum(said['statusCodeDistribution'].values()),
            'own_errors': sum(errors.values()), **clockwork_error(arrivals_ns, load.rate)}


def vegeta(load):
    targets = os.path.join(load.folder, 'targets')
    return [find('vegeta'), 'attack', '-targets', targets, '-rate', f'{load.rate}/1s',
            '-max-workers', str(load.connections), '-workers', str(load.connections),
            '-duration', f'{load.seconds}s', '-max-body', '0',
            '-output', os.path.join(load.folder, 'results')]


def prepare(load):
    """Input files that a client needs."""
    with open(os.path.join(load.folder, 'targets'), 'w') as targets:
        targets.write(f'GET {url(load)}\n')


def read_vegeta(load, _text, arrivals_ns):
    # Its results are a file in a format of its own; the server has counted.
    return clockwork_error(arrivals_ns, load.rate)


def product(pattern, timer):
    def command(load):
        timer_core = ['--timer-core', str(load.timer_core)] if timer == 'dedicated' else []
        return [product_path(), pattern, url(load), '-R', str(load.rate), '-d', f'{load.seconds}s',
                '-c', str(load.connections), '--cores', core_list(load.cores), '--timer', timer,
                *timer_core, '--seed', str(load.seed), '--interval', '1s', '--json', '-q',
                '--report-dir', report_of(load)]
    return command


def report_of(load):
    return os.path.join(load.folder, 'report')


def dig(tree, *path):
    """A value deep in a JSON tree, or None: keys may not be there yet, or not in this mode."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def micros(ns):
    return None if ns is None else ns / 1e3


def read_product(is_constant):
    def read(load, text, arrivals_ns):
        result = json.loads(text)
        checks = dig(result, 'trust', 'checks') or []
        by_id = {check.get('id'): check for check in checks}
        columns = {
            'own_count': result['counters']['total_samples_completed'],
            'own_errors': result['counters']['total_samples_failed'],
            'late_p50_us': micros(dig(result, 'lateness', 'percentiles', '50.0')),
            'late_p99_us': micros(dig(result, 'lateness', 'percentiles', '99.0')),
            'late_max_us': micros(dig(result, 'lateness', 'max')),
            'late_second_p99_us': micros(second_p99_ns(report_of(load))),
            'service_p50_us': micros(dig(result, 'service_latency', 'percentiles', '50.0')),
            'service_p99_us': micros(dig(result, 'service_latency', 'percentiles', '99.0')),
            'trust': dig(result, 'trust', 'verdict'),
            'trust_faults': ' '.join(f"{check.get('id')}:{check.get('verdict')}" for check in checks
                                     if check.get('verdict') in ('fail', 'warn')),
            'busy': dig(by_id.get('D5'), 'value'),
            'schedule_hash': dig(result, 'schedule_hash'),
        }
        return columns | (clockwork_error(arrivals_ns, load.rate) if is_constant else {})
    return read


def second_p99_ns(report):
    """Median over the intervals (1 s) of each interval's p99 lateness."""
    values = []
    for path in glob.glob(os.path.join(report, 'phases', 'performance', 'intervals.jsonl')):
        with open(path) as lines:
            for line in filter(str.strip, lines):
                lateness = dig(json.loads(line), 'lateness')
                values += [dig(lateness, 'p99'), dig(lateness, 'percentiles', '99.0')]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def read_clock(report):
    """What the product says of its clock, as text; nothing if it wrote no snapshot."""
    try:
        with open(os.path.join(report, 'metrics', 'final_snapshot.json')) as file:
            clock = dig(json.load(file), 'host', 'clock')
    except (OSError, ValueError):
        clock = None
    return json.dumps(clock) if clock else None


def ours(pattern, timer):
    return Client(product(pattern, timer), read_product(pattern == 'constant'), pattern,
                  (0, UNTRUSTED))


def name_of(pattern, timer):
    return f'{OURS} {pattern} {timer}'


TIMERS = ('hybrid', 'inline', 'dedicated')
PATTERNS = ('poisson', 'constant')
REFERENCE = {'poisson': 'reference poisson', 'constant': 'reference constant'}
RIVALS = ('wrk2', 'oha', 'vegeta')
CLIENTS = {
    REFERENCE['constant']: Client(reference(), read_reference, 'constant'),
    REFERENCE['poisson']: Client(reference('-e'), read_reference, 'poisson'),
    **{name_of(pattern, timer): ours(pattern, timer) for pattern in PATTERNS for timer in TIMERS},
    'wrk2': Client(wrk2, read_wrk2, 'constant'),
    'oha': Client(oha, read_oha, 'constant'),
    'vegeta': Client(vegeta, read_vegeta, 'constant'),
}


def find(name):
    """A rival's program: $WRK2, $OHA, $VEGETA, else perf/build, else on PATH; None if not there."""
    chosen = os.environ.get(name.upper())
    return shutil.which(chosen or os.path.join(BUILD, name)) or (
        None if chosen else shutil.which(name))


def is_there(name):
    if name in RIVALS:
        return find(name) is not None
    if name.startswith(OURS):
        return shutil.which(product_path()) is not None
    return shutil.which(os.path.join(BUILD, 'refsender')) is not None
