"""The folder of a study, whatever was studied: see `closedloop`, `openloop` and `streams`."""
import csv
import datetime
import os
import platform
import re
import shutil
import subprocess

from . import closedloop, openloop, opensummary, streams, streamsummary, summary
from .measure import output
from .servers import PERF


def loop_of(options):
    """The module that knows the runs of this mode."""
    return next(loop for loop in (closedloop, openloop, streams) if options.mode in loop.QUESTIONS)


def execute(options, folder):
    """All runs; a row is on disk as soon as its run is over."""
    loop = loop_of(options)
    with open(os.path.join(folder, 'raw.csv'), 'w', newline='') as file:
        fields = loop.fields(options)
        writer = csv.DictWriter(file, fields, lineterminator='\n')
        writer.writeheader()
        for row in loop.rows(options):
            writer.writerow({k: tidy(v) for k, v in row.items()})
            file.flush()
            loop.tell(row)


def tidy(value):
    if isinstance(value, float):
        return f'{value:.6g}' if abs(value) < 1e5 else f'{value:.1f}'
    return value


def summarise(folder):
    """summary.md; the first column tells what the study was."""
    with open(os.path.join(folder, 'raw.csv')) as file:
        first_column = file.readline().split(',')[0]
    readers = {'study': opensummary, 'stream_study': streamsummary}
    readers.get(first_column, summary).summarise(folder)


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
    loop = loop_of(options)
    return '\n'.join([
        f'# {options.slug}, {today}', '', loop.QUESTIONS[options.mode], '',
        *loop.describe(options), '',
        'The answer is in [summary.md](summary.md), made from [raw.csv](raw.csv), one row a run.',
        'How it was called: [command.txt](command.txt). On what: [machine.txt](machine.txt).',
        'What the columns mean: [perf/README.md](../../README.md).', ''])


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
        **loop_of(options).versions(options),
    }
    return ''.join(f'{name}: {value}\n' for name, value in facts.items())


def require(options):
    """Says what is missing before anything runs."""
    loop_of(options).require(options)
    for core in {*options.client_cores, options.server_core, *options.timer_cores}:
        if core not in os.sched_getaffinity(0):
            raise SystemExit(f'core {core} is not among the allowed ones')
    if not shutil.which('git'):
        raise SystemExit('missing: git, which names the commit that was measured')
