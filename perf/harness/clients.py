"""The clients of a study: the command line of each, and what it says of itself.

Only p50, p99 and the client's own count come from here. Rates come from the server, CPU and memory
from the kernel.
"""
import collections
import json
import os
import re
import shutil

from .servers import BUILD, PERF

Load = collections.namedtuple('Load', 'port connections seconds core')

UNITS_US = {'us': 1, 'ms': 1e3, 's': 1e6, 'm': 6e7}


def url(load):
    return f'http://127.0.0.1:{load.port}/'


def wrk(load):
    return ['wrk', '-t1', f'-c{load.connections}', f'-d{load.seconds}s', '--latency', url(load)]


def read_wrk(text, with_percentiles=True):
    def percentile_us(percent):
        number, unit = re.search(rf'\n\s+{percent}%\s+([\d.]+)(us|ms|s|m)\n', text).groups()
        return float(number) * UNITS_US[unit]

    errors = re.search(r'Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)', text)
    statuses = re.search(r'Non-2xx or 3xx responses: (\d+)', text)
    counts = {
        'own_count': int(re.search(r'(\d+) requests in ', text)[1]),
        'own_errors': sum(map(int, errors.groups() if errors else []))
        + (int(statuses[1]) if statuses else 0),
    }
    if not with_percentiles:
        return counts
    return counts | {'p50_us': percentile_us(50), 'p99_us': percentile_us(99)}


def product_path():
    path = os.path.join(os.path.dirname(PERF), 'target', 'release', 'loadgen-uring')
    return os.path.abspath(os.environ.get('LOADGEN_URING', path))


def product(*flags):
    def command(load):
        return [product_path(), 'max-throughput', url(load), '-c', str(load.connections),
                '-d', f'{load.seconds}s', '--cores', str(load.core), *flags,
                '--json', '--report-dir', 'none', '-q']
    return command


def read_product(text):
    result = json.loads(text)
    percentiles = result['latency']['percentiles']

    def micros(key):                # a percentile of too few samples is null
        return None if percentiles[key] is None else percentiles[key] / 1e3

    return {
        'own_count': result['counters']['total_samples_completed'],
        'own_errors': result['counters']['total_samples_failed'],
        'p50_us': micros('50.0'),
        'p99_us': micros('99.0'),
    }


def floor(*flags):
    def command(load):
        return [os.path.join(BUILD, 'floorclient'), *flags, *short_flags(load)]
    return command


def engine(name):
    def command(load):
        path = os.path.join(PERF, 'engines', 'target', 'release', 'engines')
        return [path, name, *short_flags(load)]
    return command


def short_flags(load):
    return ['-c', str(load.connections), '-d', str(load.seconds), '-p', str(load.port)]


def read_json_line(text):
    result = json.loads(text)
    return {'own_count': result['requests'], 'own_errors': result['errors'],
            'own_chunks': result.get('chunks', 0), 'p50_us': result['p50_us'],
            'p99_us': result['p99_us']}


OURS = 'loadgen-uring'
ENGINES = ('uring', 'epoll', 'tokio', 'monoio', 'glommio')
CLIENTS = {     # name: (load -> command, stdout -> what the client says)
    OURS: (product(), read_product),
    f'{OURS} --spin': (product('--spin'), read_product),
    'wrk': (wrk, read_wrk),
    'floor': (floor(), read_json_line),
    'floor --spin': (floor('-s'), read_json_line),
} | {name: (engine(name), read_json_line) for name in ENGINES}


def program(name):
    command, _ = CLIENTS[name]
    return command(Load(port=1, connections=1, seconds=1, core=0))[0]


def missing(names):
    """The clients whose program is not there."""
    return [name for name in names if not shutil.which(program(name))]
