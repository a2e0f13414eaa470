"""Command line of the harness; perf/compare.sh calls it after it has built everything."""
import argparse
import os
import shlex
import sys

from . import study
from .clients import CLIENTS
from .servers import BUILD, SERVERS
from .summary import summarise


def names(table):
    def parse(text):
        for name in text.split(','):
            if name not in table:
                raise argparse.ArgumentTypeError(f'{name!r} is none of: ' + ', '.join(table))
        return text.split(',')
    return parse


def counts(text):
    return [int(number) for number in text.split(',')]


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog='perf/compare.sh', description='Builds everything, runs a study, writes its folder.')
    parser.add_argument('mode', choices=['peers', 'engines', 'summarise'],
                        help='peers: against wrk and the floor; engines: the same client on several '
                             'engines; summarise: make summary.md again (with --out FOLDER)')
    parser.add_argument('--slug', help='name of the folder after the date (default: the mode)')
    parser.add_argument('--repetitions', type=int, default=7)
    parser.add_argument('--seconds', type=int, default=5, help='of one run')
    parser.add_argument('--connections', type=counts, default=[1, 8, 64, 256])
    parser.add_argument('--servers', type=names(SERVERS), help=','.join(SERVERS))
    parser.add_argument('--clients', type=names(CLIENTS), help='only these: ' + ','.join(CLIENTS))
    parser.add_argument('--background', type=float, default=0.15, metavar='CORES',
                        help='a run with more foreign CPU is repeated')
    parser.add_argument('--attempts', type=int, default=4, help='at a run that does not count')
    parser.add_argument('--seed', type=int, default=42, help='of the order')
    parser.add_argument('--client-core', type=int, default=0)
    parser.add_argument('--server-core', type=int, default=1)
    parser.add_argument('--port', type=int, default=9471)
    parser.add_argument('--out', help='another folder than perf/studies/DATE-SLUG')
    parser.add_argument('--smoke', action='store_true',
                        help='does everything work? One repetition of 1 s, no bound, into perf/build')
    options = parser.parse_args(arguments)
    options.slug = options.slug or options.mode
    if options.smoke:
        options.repetitions, options.seconds, options.attempts = 1, 1, 1
        options.background = float('inf')
        options.out = options.out or os.path.join(BUILD, f'smoke-{options.slug}')
    if min(options.repetitions, options.seconds, options.attempts, *options.connections) < 1:
        parser.error('repetitions, seconds, attempts and connections start at 1')
    if options.client_core == options.server_core:
        parser.error('client and server need a core each')
    return options


def main():
    options = parse(sys.argv[1:])
    if options.mode == 'summarise':
        if not options.out:
            raise SystemExit('summarise needs --out FOLDER')
        summarise(options.out)
        return
    study.require(options)
    folder = study.write(options, shlex.join(['perf/compare.sh', *sys.argv[1:]]))
    print(os.path.relpath(os.path.join(folder, 'summary.md')))


if __name__ == '__main__':
    main()
