"""One run: a fresh server, one client against it, and what server and kernel saw meanwhile."""
import json
import os
import signal
import subprocess
import tempfile
import time

from .clients import CLIENTS, Load
from .servers import BUILD, SERVERS

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


def launch(command, core, limit_s):
    """Runs the command under rivals/launch.c: (its costs, stdout, stderr)."""
    with tempfile.TemporaryDirectory(prefix='perf-') as folder:
        result = os.path.join(folder, 'result')
        with open(os.path.join(folder, 'out'), 'w+') as out, \
                open(os.path.join(folder, 'err'), 'w+') as err:
            process = subprocess.Popen(
                [os.path.join(BUILD, 'launch'), str(core), str(limit_s), result, *command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder)
            try:
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


def run(cell, client, options):
    """One row of raw.csv, without its verdict on the machine: see `judge`."""
    server_name, connections = cell
    command, reader = CLIENTS[client]
    life_s = options.seconds + CLIENT_GRACE_S + 15
    with SERVERS[server_name](server_name, options.port, options.server_core, life_s) as server:
        before, server_cpu_s, (busy_s, steal_s) = server.counts(), server.cpu_s(), machine_cpu_s()
        start_s = time.monotonic()
        load = Load(options.port, connections, options.seconds, options.client_core)
        costs, out, err = launch(command(load), load.core, load.seconds + CLIENT_GRACE_S)
        wall_s = time.monotonic() - start_s
        server_cpu_s = server.cpu_s() - server_cpu_s
        busy_s, steal_s = (after - b for after, b in zip(machine_cpu_s(), (busy_s, steal_s)))
        time.sleep(0.02)        # what the client sent last is still on its way through the server
        after = server.counts()
    row = dict.fromkeys(FIELDS)
    row |= {name: after[name] - before[name] for name in
            ('requests', 'chunks', 'pace_slips', 'send_faults')}
    row |= {name: costs[name] for name in
            ('user_s', 'sys_s', 'rss_kib', 'switches', 'preemptions', 'exit')}
    cpu_s = costs['user_s'] + costs['sys_s']
    row |= {
        'server': server_name, 'connections': connections, 'client': client,
        'seconds': options.seconds, 'wall_s': wall_s, 'server_cpu_s': server_cpu_s,
        'background_cores': max(0, busy_s - cpu_s - server_cpu_s) / wall_s,
        'steal_cores': steal_s / wall_s,
    }
    units = row['chunks'] or row['requests']
    if after['first_recv_ns']:
        # From the first receive to the last: exact, whatever a client does before and after.
        row['window_s'] = (after['last_recv_ns'] - after['first_recv_ns']) / 1e9
        row['first_recv_ms'] = (after['first_recv_ns'] - costs['exec_ns']) / 1e6
    row['rate'] = units / (row['window_s'] or options.seconds)
    row['cpu_us'] = cpu_s / units * 1e6 if units else None
    row |= heard(reader, out)
    if costs['exit'] != 0:
        row['verdict'] = f"exit {costs['exit']}: {' '.join(err.split())[-200:]}"
    return row


def heard(reader, text):
    """What the client says; a client that says something else spoils its run, not the study."""
    try:
        return reader(text)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
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
