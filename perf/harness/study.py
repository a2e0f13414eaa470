"""What is run, in which order, and the folder of a study.

A cell is a server and a number of connections. Within a cell the clients run one after the other,
and their runs of one repetition are compared with each other only: what drifts on the machine
drifts for all of them.
"""
import csv
import datetime
import os
import platform
import random
import re
import shutil
import subprocess

from .clients import ENGINES, OURS, missing, program
from .measure import FIELDS, judge, run
from .servers import PERF, find_nginx
from .summary import summarise

SPIN = (f'{OURS} --spin', 'floor --spin')
SSE_STREAMS = 256
SERVERS_OF = {'peers': ['fast', 'nginx'], 'engines': ['fast', 'sse']}
CLIENTS_OF = {'peers': [OURS, 'wrk', 'floor', *SPIN], 'engines': [OURS, *ENGINES]}

QUESTIONS = {
    'peers': 'Does `loadgen-uring` reach its targets against wrk, and how far is it from the floor '
             'of a client on io_uring?',
    'engines': 'What does the same minimal client cost on each engine, and what does '
               '`loadgen-uring` cost beside it?',
}


def plan(options):
    """[(cell, clients)] of one repetition, in the order of the tables."""
    servers = options.servers or SERVERS_OF[options.mode]
    chosen = options.clients or CLIENTS_OF[options.mode]
    cells = [(server, connections) for server in servers
             for connections in ([SSE_STREAMS] if server == 'sse' else options.connections)]
    fitting = [(cell, [client for client in chosen if fits(cell, client)]) for cell in cells]
    return [(cell, clients) for cell, clients in fitting if clients]


def fits(cell, client):
    server, connections = cell
    if server == 'sse':
        return client in ENGINES
    if client in SPIN:      # nginx sleeps: its wake-ups would be measured, not the client
        return connections == 1 and server != 'nginx'
    return True


def execute(options, folder):
    """All runs; a row is on disk as soon as its run is over."""
    shuffle = random.Random(options.seed).shuffle
    with open(os.path.join(folder, 'raw.csv'), 'w', newline='') as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator='\n')
        writer.writeheader()
        for repetition in range(1, options.repetitions + 1):
            cells = plan(options)
            shuffle(cells)
            for cell, clients in cells:
                shuffle(clients)
                rows = (row for client in clients for row in attempts(cell, client, options))
                for row in rows:
                    row['repetition'] = repetition
                    writer.writerow({k: tidy(v) for k, v in row.items()})
                    file.flush()
                    tell(row)


def attempts(cell, client, options):
    """A run that does not count is repeated at once, a few times; all are written down."""
    for attempt in range(1, options.attempts + 1):
        row = run(cell, client, options)
        row['attempt'] = attempt
        row['verdict'] = judge(row, options)
        yield row
        if row['verdict'] == 'kept':
            return


def tidy(value):
    if isinstance(value, float):
        return f'{value:.6g}' if abs(value) < 1e5 else f'{value:.1f}'
    return value


def tell(row):
    def number(key, form):
        return '-' if row[key] is None else format(row[key], form)

    print(f"{row['repetition']:>2} {row['server']:7} c={row['connections']:<4} {row['client']:20} "
          f"{number('rate', '9.0f')}/s  cpu {number('cpu_us', '6.2f')} us  "
          f"p50 {number('p50_us', '.1f')} us  rss {row['rss_kib'] / 1024:.1f} MiB  "
          f"background {row['background_cores']:.2f}  {row['verdict']}", flush=True)


def write(options, command):
    """Runs the study and writes its five files; returns the folder."""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    folder = options.out or os.path.join(PERF, 'studies', f'{today}-{options.slug}')
    if os.path.exists(folder) and not options.smoke:
        raise SystemExit(f'{os.path.relpath(folder)} is there already: a study is never '
                         'overwritten, choose another --slug')
    os.makedirs(folder, exist_ok=True)
    put(folder, 'command.txt', f'{command}\n\ncommit {commit()}\n')
    put(folder, 'machine.txt', machine(options))
    try:
        execute(options, folder)
    finally:        # what was measured is summed up, whatever ended the study
        summarise(folder)
        put(folder, 'README.md', readme(options, today))
    return folder


def put(folder, name, text):
    with open(os.path.join(folder, name), 'w') as file:
        file.write(text)


def readme(options, today):
    cells = [f'- {server}, connections {connections}: {", ".join(clients)}'
             for (server, connections), clients in plan(options)]
    return '\n'.join([
        f'# {options.slug}, {today}', '', QUESTIONS[options.mode], '',
        f'{options.repetitions} repetitions of {options.seconds} s a run; cells and clients in '
        f'random order (seed {options.seed}); client on core {options.client_core}, server on core '
        f'{options.server_core}. A run with more than {options.background} cores of foreign or '
        f'stolen CPU is repeated, at most {options.attempts} times.', '', *cells, '',
        'The answer is in [summary.md](summary.md), made from [raw.csv](raw.csv), one row a run.',
        'How it was called: [command.txt](command.txt). On what: [machine.txt](machine.txt).',
        'What the columns mean: [perf/README.md](../../README.md).', ''])


def output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=PERF, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return 'not there'
    return (done.stdout or done.stderr).strip()


def commit():
    changed = output('git', 'status', '--porcelain', '--untracked-files=no', '..')
    return output('git', 'rev-parse', 'HEAD') + (' with local changes' if changed else '')


def first(path, pattern):
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.M)
    except OSError:
        found = None
    return found[1].strip() if found else 'unknown'


def machine(options):
    """Facts that a reader needs to compare; no names of hosts, users or folders."""
    used = sorted({c for _, clients in plan(options) for c in clients})
    facts = {
        'kernel': f'{platform.system()} {platform.release()} {platform.machine()}',
        'cpu': first('/proc/cpuinfo', r'^model name\s*: (.*)$'),
        'cores': f'{os.cpu_count()} ({len(os.sched_getaffinity(0))} allowed)',
        'memory': first('/proc/meminfo', r'^MemTotal:\s*(.*)$'),
        'hypervisor': 'yes' if 'hypervisor' in first('/proc/cpuinfo', r'^flags\s*: (.*)$') else 'no',
        'governor': first('/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor', r'(.*)'),
        'clock source': first(
            '/sys/devices/system/clocksource/clocksource0/current_clocksource', r'(.*)'),
        'rustc': output('rustc', '--version'),
        'cc': output('cc', '--version').splitlines()[0],
        'liburing': output('pkg-config', '--modversion', 'liburing'),
        'python': platform.python_version(),
        'nginx': output(find_nginx() or 'nginx', '-v'),
    }
    if 'wrk' in used:
        facts['wrk'] = output('wrk', '-v').splitlines()[0]
    if OURS in used:
        facts[OURS] = output(program(OURS), '--version')
    if set(used) & set(ENGINES):
        with open(os.path.join(PERF, 'engines', 'Cargo.lock')) as lock:
            versions = dict(re.findall(r'name = "(.*)"\nversion = "(.*)"', lock.read()))
        # io-uring is there twice, monoio has an older one; the last is ours.
        facts |= {name: versions[name] for name in ('io-uring', 'tokio', 'monoio', 'glommio')}
    return ''.join(f'{name}: {value}\n' for name, value in facts.items())


def require(options):
    """Says what is missing before anything runs."""
    clients = sorted({c for _, clients in plan(options) for c in clients})
    gone = missing(clients)
    if any(cell[0] == 'nginx' for cell, _ in plan(options)) and not find_nginx():
        gone.append('nginx')
    if gone:
        raise SystemExit('missing: ' + ', '.join(gone) + '; install or build it, or leave it out '
                         'with --clients and --servers')
    for core in (options.client_core, options.server_core):
        if core not in os.sched_getaffinity(0):
            raise SystemExit(f'core {core} is not among the allowed ones')
    if not shutil.which('git'):
        raise SystemExit('missing: git, which names the commit that was measured')
