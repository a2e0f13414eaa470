"""Command line of the harness; perf/compare.sh calls it after it has built everything."""
import argparse
import os
import shlex
import sys

from . import closedloop, openloop, streams, study
from .clients import CLIENTS
from .openclients import CLIENTS as OPEN_CLIENTS
from .servers import BUILD, SERVERS
from .streamclients import CLIENTS as STREAM_CLIENTS

MODES = {
    'peers': 'against wrk and the floor',
    'engines': 'the same client on several engines',
    'precision': 'open loop: how precisely a schedule is kept, against wrk2, oha, vegeta',
    'rate': 'open loop: the highest rate with a verdict that is not FAIL',
    'idle': 'open loop: CPU at low rates',
    'soak': 'open loop: memory and clock over --seconds (600)',
    'streaming': 'streams: the cost of a chunk beside the engines, TTFT against the truth',
    'rivals-llm': 'streams: against aiperf, guidellm, endpoints and the truth',
    'summarise': 'make summary.md again (with --out FOLDER)',
}
SMOKE_SOAK_SECONDS = 3


def words(text):
    return text.split(',')


def counts(text):
    return [int(number) for number in text.split(',')]


def cores(text):
    """'0,2-4' -> [0, 2, 3, 4]."""
    listed = []
    for part in text.split(','):
        first, _, last = part.partition('-')
        listed += range(int(first), int(last or first) + 1)
    return listed


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog='perf/compare.sh', description='Builds everything, runs a study, writes its folder.')
    parser.add_argument('mode', choices=MODES,
                        help='; '.join(f'{mode}: {what}' for mode, what in MODES.items()))
    parser.add_argument('--slug', help='name of the folder after the date (default: the mode)')
    parser.add_argument('--repetitions', type=int, help='closed loop and streaming 7, others 3')
    parser.add_argument('--seconds', type=int, help='of one run; default by mode')
    parser.add_argument('--connections', type=counts,
                        help='closed loop: one cell each, 1,8,64,256; open loop: one number, '
                             'default by rate')
    parser.add_argument('--rates', type=counts, help='open loop: requests/s, one cell each')
    parser.add_argument('--servers', type=words, help='closed loop: ' + ','.join(SERVERS)
                        + '; streams: ' + ','.join(streams.PACES))
    parser.add_argument('--clients', type=words, help='only these; closed loop: '
                        + ','.join(CLIENTS) + '; open loop: ' + ','.join(OPEN_CLIENTS)
                        + '; streams: ' + ','.join(STREAM_CLIENTS))
    parser.add_argument('--background', type=float, default=0.15, metavar='CORES',
                        help='a run with more foreign CPU is repeated')
    parser.add_argument('--attempts', type=int, default=4, help='at a run that does not count')
    parser.add_argument('--seed', type=int, default=42, help='of the order, and of schedules')
    parser.add_argument('--client-cores', '--client-core', type=cores, metavar='LIST',
                        default=os.environ.get('PERF_CLIENT_CORES', '0'),
                        help='0 or $PERF_CLIENT_CORES; in an open loop a shard on each')
    parser.add_argument('--server-core', type=int, default=os.environ.get('PERF_SERVER_CORE', '1'),
                        help='1 or $PERF_SERVER_CORE')
    parser.add_argument('--timer-core', type=int, default=os.environ.get('PERF_TIMER_CORE'),
                        help='for --timer dedicated; default $PERF_TIMER_CORE, or with '
                             f'{openloop.CORES_OF_DEDICATED} cores and more the first free one')
    parser.add_argument('--port', type=int, default=9471)
    parser.add_argument('--out', help='another folder than perf/studies/DATE-SLUG')
    parser.add_argument('--smoke', action='store_true',
                        help='does everything work? One repetition of 1 s, no bound, into '
                             'perf/build')
    options = parser.parse_args(arguments)
    if options.mode != 'summarise':
        complete(options)
        refuse_nonsense(options, parser.error)
    return options


def complete(options):
    """Fills in what depends on other options or on the machine."""
    options.slug = options.slug or options.mode
    by_mode = closedloop.DEFAULTS | openloop.DEFAULTS | streams.DEFAULTS
    defaults = {'connections': None} | by_mode[options.mode]
    if options.smoke:
        options.attempts, options.background = 1, float('inf')
        options.repetitions = 1
        options.seconds = SMOKE_SOAK_SECONDS if options.mode == 'soak' else 1
        options.out = options.out or os.path.join(BUILD, f'smoke-{options.slug}')
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.client_core = options.client_cores[0]
    options.timer_cores = timer_cores(options, sorted(os.sched_getaffinity(0)))


def timer_cores(options, allowed):
    """The core for a dedicated timer; none on a machine that has none to spare."""
    if options.timer_core is not None:
        return [options.timer_core]
    free = [core for core in allowed if core not in (*options.client_cores, options.server_core)]
    return free[:1] if len(allowed) >= openloop.CORES_OF_DEDICATED else []


def refuse_nonsense(options, complain):
    connections = options.connections or [1]
    if min(options.repetitions, options.seconds, options.attempts, *connections) < 1:
        complain('repetitions, seconds, attempts and connections start at 1')
    taken = [*options.client_cores, *options.timer_cores, options.server_core]
    if len(set(taken)) < len(taken):
        complain('every shard, a dedicated timer and the server need a core each')
    study.loop_of(options).check(options, complain)


def main():
    options = parse(sys.argv[1:])
    if options.mode == 'summarise':
        if not options.out:
            raise SystemExit('summarise needs --out FOLDER')
        study.summarise(options.out)
        return
    study.require(options)
    folder = study.write(options, shlex.join(['perf/compare.sh', *sys.argv[1:]]))
    print(os.path.relpath(os.path.join(folder, 'summary.md')))


if __name__ == '__main__':
    main()
