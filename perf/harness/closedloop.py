"""The closed-loop studies: which runs, in which order.

A cell is a server and a number of connections. Within a cell the clients run one after the other,
and their runs of one repetition are compared with each other only: what drifts on the machine
drifts for all of them.
"""
import os
import re

from . import measure
from .clients import CLIENTS, ENGINES, OURS, missing, program
from .measure import FIELDS, output
from .servers import PERF, SERVERS, find_nginx

SPIN = (f'{OURS} --spin', 'floor --spin')
SERVERS_OF = {'peers': ['fast', 'nginx'], 'engines': ['fast']}
CLIENTS_OF = {'peers': [OURS, 'wrk', 'floor', *SPIN], 'engines': [OURS, *ENGINES]}
DEFAULTS = {mode: {'repetitions': 7, 'seconds': 5, 'connections': [1, 8, 64, 256]}
            for mode in SERVERS_OF}

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
             for connections in options.connections]
    fitting = [(cell, [client for client in chosen if fits(cell, client)]) for cell in cells]
    return [(cell, clients) for cell, clients in fitting if clients]


def fits(cell, client):
    server, connections = cell
    if client in SPIN:      # nginx sleeps: its wake-ups would be measured, not the client
        return connections == 1 and server != 'nginx'
    return True


def fields(_options):
    return FIELDS


def rows(options):
    """All runs, in the order in which they are made."""
    return measure.in_random_order(plan, measure.run, options)


def tell(row):
    def number(key, form):
        return '-' if row[key] is None else format(row[key], form)

    print(f"{row['repetition']:>2} {row['server']:7} c={row['connections']:<4} {row['client']:20} "
          f"{number('rate', '9.0f')}/s  cpu {number('cpu_us', '6.2f')} us  "
          f"p50 {number('p50_us', '.1f')} us  rss {row['rss_kib'] / 1024:.1f} MiB  "
          f"background {row['background_cores']:.2f}  {row['verdict']}", flush=True)


def describe(options):
    """What README.md of the study says about its runs."""
    cells = [f'- {server}, connections {connections}: {", ".join(clients)}'
             for (server, connections), clients in plan(options)]
    return [f'{options.repetitions} repetitions of {options.seconds} s a run; cells and clients in '
            f'random order (seed {options.seed}); client on core {options.client_core}, server on '
            f'core {options.server_core}. A run with more than {options.background} cores of '
            f'foreign or stolen CPU is repeated, at most {options.attempts} times.', '', *cells]


def used(options):
    return sorted({client for _, clients in plan(options) for client in clients})


def versions(options):
    """What machine.txt says about the programs measured."""
    facts, clients = {'nginx': output(find_nginx() or 'nginx', '-v')}, used(options)
    if 'wrk' in clients:
        facts['wrk'] = output('wrk', '-v').splitlines()[0]
    if OURS in clients:
        facts[OURS] = output(program(OURS), '--version')
    if set(clients) & set(ENGINES):
        with open(os.path.join(PERF, 'engines', 'Cargo.lock')) as lock:
            locked = dict(re.findall(r'name = "(.*)"\nversion = "(.*)"', lock.read()))
        # io-uring is there twice, monoio has an older one; the last is ours.
        facts |= {name: locked[name] for name in ('io-uring', 'tokio', 'monoio', 'glommio')}
    return facts


def check(options, complain):
    known = (('client', CLIENTS, options.clients), ('server', SERVERS, options.servers))
    for what, table, chosen in known:
        for name in chosen or []:
            if name not in table:
                complain(f'no {what} {name!r}; there are: ' + ', '.join(table))
    if len(options.client_cores) > 1:
        complain('a closed-loop study takes one client core')


def require(options):
    """Says what is missing before anything runs."""
    gone = missing(used(options))
    if any(cell[0] == 'nginx' for cell, _ in plan(options)) and not find_nginx():
        gone.append('nginx')
    if gone:
        raise SystemExit('missing: ' + ', '.join(gone) + '; install or build it, or leave it out '
                         'with --clients and --servers')
