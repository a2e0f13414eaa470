"""One run: a fresh server, one client against it, and what server and kernel saw meanwhile."""
import json
import os
import random
import signal
import subprocess
import tempfile
import time

from .clients import CLIENTS, Load
from .servers import BUILD, PERF, SERVERS

CLIENT_GRACE_S = 15     # after its own duration; then the client is killed
FIELDS = (
    'repetition', 'server', 'connections', 'client', 'attempt', 'verdict', 'seconds', 'requests',
    'chunks', 'window_s', 'rate', 'user_s', 'sys_s', 'cpu_us', 'p50_us', 'p99_us', 'rss_kib',
    'first_recv_ms', 'own_count', 'own_chunks', 'own_errors', 'server_cpu_s', 'background_cores',
    'steal_cores', 'switches', 'preemptions', 'pace_slips', 'send_faults', 'wall_s', 'exit')


def machine_cpu_s():
    """(busy, stolen) CPU seconds of the machine since boot; stolen time is not busy."""
    with open('/proc/stat') as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, stat.readline().split()[1:9])
    tick = os.sysconf('SC_CLK_TCK')
    return (user + nice + system + irq + softirq) / tick, steal / tick


def core_list(cores):
    return ','.join(map(str, cores))


def launch(command, cores, limit_s, watch=None):
    """Runs the command under rivals/launch.c: (its costs, stdout, stderr). `watch` gets the started
    launcher and returns when it has seen enough."""
    with tempfile.TemporaryDirectory(prefix='perf-') as folder:
        result = os.path.join(folder, 'result')
        with open(os.path.join(folder, 'out'), 'w+') as out, \
                open(os.path.join(folder, 'err'), 'w+') as err:
            process = subprocess.Popen(
                [os.path.join(BUILD, 'launch'), core_list(cores), str(limit_s), result, *command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder)
            try:
                if watch:
                    watch(process)
                process.wait(limit_s + 5)
            finally:
                if process.poll() is None:      # its child dies with it
                    process.send_signal(signal.SIGKILL)
                    process.wait()
            out.seek(0)
            err.seek(0)
            texts = out.read(), err.read()
        if process.returncode != 0:
            raise SystemExit(f'launch failed: {texts[1].strip()}')
        with open(result) as costs:
            return json.load(costs), *texts


def observe(server, command, cores, limit_s, watch=None):
    """One client against a started server: (its columns of raw.csv, stdout, stderr)."""
    before, server_cpu_s, (busy_s, steal_s) = server.counts(), server.cpu_s(), machine_cpu_s()
    start_s = time.monotonic()
    costs, out, err = launch(command, cores, limit_s, watch)
    wall_s = time.monotonic() - start_s
    server_cpu_s = server.cpu_s() - server_cpu_s
    busy_s, steal_s = (after - b for after, b in zip(machine_cpu_s(), (busy_s, steal_s)))
    time.sleep(0.02)        # what the client sent last is still on its way through the server
    after = server.counts()
    seen = {name: after[name] - before[name] for name in
            ('requests', 'chunks', 'pace_slips', 'send_faults')}
    seen |= {name: costs[name] for name in
             ('user_s', 'sys_s', 'rss_kib', 'switches', 'preemptions', 'exit')}
    cpu_s = costs['user_s'] + costs['sys_s']
    seen |= {
        'wall_s': wall_s, 'server_cpu_s': server_cpu_s,
        'background_cores': max(0, busy_s - cpu_s - server_cpu_s) / wall_s,
        'steal_cores': steal_s / wall_s,
    }
    if after['first_recv_ns']:
        # From the first receive to the last: exact, whatever a client does before and after.
        seen['window_s'] = (after['last_recv_ns'] - after['first_recv_ns']) / 1e9
        seen['first_recv_ms'] = (after['first_recv_ns'] - costs['exec_ns']) / 1e6
    return seen, out, err


def run(cell, client, options):
    """One row of raw.csv, without its verdict on the machine: see `judge`."""
    server_name, connections = cell
    command, reader = CLIENTS[client]
    life_s = options.seconds + CLIENT_GRACE_S + 15
    row = dict.fromkeys(FIELDS)
    row |= {'server': server_name, 'connections': connections, 'client': client,
            'seconds': options.seconds}
    with SERVERS[server_name](server_name, options.port, options.server_core, life_s) as server:
        load = Load(options.port, connections, options.seconds, options.client_core)
        seen, out, err = observe(server, command(load), [load.core], load.seconds + CLIENT_GRACE_S)
    row |= seen
    units = row['chunks'] or row['requests']
    row['rate'] = units / (row['window_s'] or options.seconds)
    row['cpu_us'] = (row['user_s'] + row['sys_s']) / units * 1e6 if units else None
    row |= heard(reader, out)
    if row['exit'] != 0:
        row['verdict'] = failure(row['exit'], err)
    return row


def failure(status, err):
    return f"exit {status}: {' '.join(err.split())[-200:]}"


def heard(reader, text):
    """What the client says; a client that says something else spoils its run, not the study."""
    try:
        return reader(text)
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        return {'verdict': f'unreadable output: {error!r}'}


def judge(row, options):
    """Why a run does not count, or `kept`. A fault of the client comes before one of the machine."""
    if row['verdict']:
        return row['verdict']
    if not row['requests']:
        return 'no request reached the server'
    if row['own_errors']:
        return f"the client counted {row['own_errors']} errors"
    if row['send_faults']:
        return f"the server cut {row['send_faults']} connections"
    if row['background_cores'] > options.background:
        return f"background {row['background_cores']:.2f} cores"
    if row['steal_cores'] > options.background:
        return f"steal {row['steal_cores']:.2f} cores"
    return 'kept'


def attempts(run_once, options):
    """A run that does not count is repeated at once, a few times; all are written down."""
    for attempt in range(1, options.attempts + 1):
        row = run_once()
        row |= {'attempt': attempt, 'verdict': judge(row, options)}
        yield row
        if row['verdict'] == 'kept':
            return


def in_random_order(plan, run, options):
    """All runs of a study, in the order in which they are made: in each repetition the cells of
    plan(options), and the clients of a cell, are shuffled; run(cell, client, options) is a row."""
    shuffle = random.Random(options.seed).shuffle
    for repetition in range(1, options.repetitions + 1):
        cells = plan(options)
        shuffle(cells)
        for cell, clients in cells:
            shuffle(clients)
            for client in clients:
                for row in attempts(lambda: run(cell, client, options), options):
                    yield row | {'repetition': repetition}


def output(*command):
    """What a program says in one call, for machine.txt and command.txt."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=PERF, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return 'not there'
    return (done.stdout or done.stderr).strip()
