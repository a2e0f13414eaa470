"""summary.md from raw.csv: medians, paired ratios, targets. It reads nothing else, so the summary of
an old study can be made again.
"""
import collections
import csv
import os
import re
import statistics

from .clients import ENGINES, OURS

KEPT = 'kept'
RATE, CPU = 'rate', 'cpu_us'
LITTLE_RANGE = (0.85, 1.1)
PAIRS_LEAST = 7         # fewer say nothing about a target
SECONDS_LEAST = 3       # shorter runs are mostly start and end


class Study:
    """The kept rows, by cell, client and repetition."""

    def __init__(self, rows):
        self.rows = rows
        self.kept = collections.defaultdict(dict)       # (server, connections, client): {rep: row}
        for row in rows:
            if row['verdict'] == KEPT:
                key = row['server'], int(row['connections']), row['client']
                self.kept[key][row['repetition']] = row

    def cells(self):
        return sorted({key[:2] for key in self.kept})

    def clients(self, cell):
        return sorted({key[2] for key in self.kept if key[:2] == cell}, key=client_order)

    def values(self, cell, client, quantity):
        """One value a run, from a column or computed from one row; runs without one are left out."""
        pick = quantity if callable(quantity) else lambda row: number(row, quantity)
        values = (pick(row) for row in self.kept.get((*cell, client), {}).values())
        return [value for value in values if value is not None]

    def ratios(self, cell, client, base, column):
        """client / base in each repetition that has both."""
        ours, theirs = (self.kept.get((*cell, name), {}) for name in (client, base))
        return [number(ours[rep], column) / number(theirs[rep], column)
                for rep in ours if rep in theirs]


def number(row, column):
    return float(row[column]) if row[column] else None


def little(row):
    """p50 x rate / connections: near 1 if the client's p50 is true (a closed loop's waiting law)."""
    p50_us = number(row, 'p50_us')
    return p50_us and p50_us / 1e6 * number(row, RATE) / int(row['connections'])


def client_order(name):
    first = [OURS, f'{OURS} --spin', 'wrk', 'floor', 'floor --spin']
    return (first.index(name) if name in first else len(first), name)


def middle(values, form='.2f', scale=1):
    return format(statistics.median(values) * scale, form) if values else '-'


def spread(values, form='.2f'):
    if not values:
        return '-'
    least, most = format(min(values), form), format(max(values), form)
    return f'{middle(values, form)} [{least}..{most}]'


def table(head, rows):
    lines = [head, ['---'] * len(head), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines] + ['']


def medians(study):
    lines = ['## Medians', '',
             'Unit: a request, against `sse` a chunk. Rates are in thousands a second, counted by '
             'the server. The split of CPU into user and system is sampled by the kernel, its sum '
             'is exact.', '']
    rows = []
    for cell in study.cells():
        for client in study.clients(cell):
            def value(quantity, form='.1f', scale=1, where=(cell, client)):
                return middle(study.values(*where, quantity), form, scale)

            rows.append([
                *cell, client, value(RATE, '.1f', 1e-3), value(CPU, '.2f'),
                value(lambda row: share(row, 'user_s'), '.0%'), value('p50_us'), value('p99_us'),
                '-' if cell[0] == 'sse' else value(little, '.2f'),
                value('rss_kib', '.1f', 1 / 1024), value('first_recv_ms'),
                value(lambda row: number(row, 'server_cpu_s') / number(row, 'wall_s'), '.2f'),
                len(study.kept[(*cell, client)])])
    return lines + table(['server', 'connections', 'client', 'k/s', 'CPU us', 'of it user', 'p50 us',
                          'p99 us', 'Little', 'peak RSS MiB', 'exec to first recv ms',
                          'server cores', 'runs'], rows)


def share(row, column):
    total = number(row, 'user_s') + number(row, 'sys_s')
    return number(row, column) / total if total else None


def paired(study, title, base_of):
    lines = [f'## {title}', '',
             'Median [least..most] over the repetitions that have both runs.', '']
    rows = []
    for cell in study.cells():
        for client in study.clients(cell):
            base = base_of(cell, client)
            rates = study.ratios(cell, client, base, RATE)
            if client != base and rates:
                rows.append([*cell, f'{client} / {base}', spread(rates),
                             spread(study.ratios(cell, client, base, CPU)), len(rates)])
    return lines + table(['server', 'connections', 'pair', 'rate', 'CPU per unit', 'pairs'], rows)


def targets(study):
    lines = ['## Targets', '', 'A target is met if the median is on the right side of the bound '
             '(memory and start: the worst run).', '']
    rows = []

    def row(what, cell, values, least=None, most=None, worst=None):
        bound = ' and '.join(f'{sign} {limit:g}' for sign, limit in (('≥', least), ('≤', most))
                             if limit is not None)
        judged = values and (worst or statistics.median)(values)
        is_met = values and (least is None or judged >= least) and (most is None or judged <= most)
        verdict = 'yes' if is_met else 'no'
        if len(values) < PAIRS_LEAST:
            verdict = f'({verdict}, too few)' if values else 'no data'
        rows.append([what, *cell, bound, spread(values), len(values), verdict])

    for cell in study.cells():
        server, connections = cell
        rates, cpus = (study.ratios(cell, OURS, 'wrk', column) for column in (RATE, CPU))
        if connections in (64, 256):
            row('requests/s to wrk', cell, rates, least=1.15)
            row('CPU per request to wrk', cell, cpus, most=0.80)
        elif connections == 8:
            row('requests/s to wrk', cell, rates, least=1.10)
            row('CPU per request to wrk', cell, cpus, most=0.87)
        elif connections == 1:
            row('requests/s to wrk, sleeping', cell, rates, least=1)
            if server == 'fast':
                spinning = study.ratios(cell, f'{OURS} --spin', 'wrk', RATE)
                row('requests/s to wrk, `--spin`', cell, spinning, least=2)
        if connections >= 8:
            least, most = LITTLE_RANGE
            row("Little's law, p50 x rate / c", cell, study.values(cell, OURS, little), least, most)
        if connections == 64:
            mib = study.values(cell, OURS, lambda r: number(r, 'rss_kib') / 1024)
            row('peak RSS, MiB', cell, mib, most=20, worst=max)
        if server != 'nginx':
            starts = study.values(cell, OURS, 'first_recv_ms')
            row('exec to first recv, ms', cell, starts, most=50, worst=max)
    return lines + table(['target', 'server', 'connections', 'bound', 'measured', 'n', 'met'], rows)


def runs_told(study):
    """How many runs there are, and why some do not count."""
    dropped = collections.Counter(
        row['verdict'].split(':')[0] for row in study.rows if row['verdict'] != KEPT)
    lines = ['## Runs', '', f'{len(study.rows)} runs, {len(study.rows) - sum(dropped.values())} kept.']
    if any(float(row['seconds']) < SECONDS_LEAST for row in study.rows):
        lines.append('- **runs this short only show that everything works**')
    lines += [f'- left out, {reason}: {count}' for reason, count in sorted(grouped(dropped).items())]
    return lines


def doubts(study):
    """What a reader has to know before believing the tables."""
    lines = runs_told(study)
    for rows in study.kept.values():
        off = [row for row in rows.values() if miscount(row)]
        if off:
            lines.append(f"- **own count and server's differ** by more than what was in flight: "
                         f"{off[0]['client']} against {off[0]['server']}, {len(off)} of {len(rows)} "
                         f"runs, e.g. {off[0]['own_count']} and {off[0]['requests']} requests")
        slips = sum(int(row['pace_slips'] or 0) for row in rows.values())
        chunks = sum(int(row['chunks'] or 0) for row in rows.values())
        if slips > chunks / 100:
            lines.append(f"- the SSE server gave up {slips / (slips + chunks):.1%} of its instants "
                         f"with {next(iter(rows.values()))['client']}")
    return lines + ['']


def grouped(dropped):
    """Counts by kind: `background 0.31 cores` and `background 0.40 cores` are one reason."""
    kinds = collections.Counter()
    for reason, count in dropped.items():
        kinds[re.sub(r'\d+\.\d+ ', '', reason)] += count
    return kinds


def miscount(row):
    """Do client and server count differently, beyond what was in flight when the client stopped?"""
    in_flight = int(row['connections'])
    if int(row['chunks'] or 0):     # streams go on a little while the client closes its connections
        in_flight += int(row['chunks']) / 100
        return abs(int(row['chunks']) - int(row['own_chunks'])) > in_flight
    return abs(int(row['requests']) - int(row['own_count'])) > in_flight


def base_wrk(_cell, _client):
    return 'wrk'


def base_floor(_cell, client):
    return 'floor --spin' if client.endswith('--spin') else 'floor'


def base_engine(cell, _client):
    return 'uring' if cell[0] == 'sse' else OURS    # in old studies; today's are in `streams`


def matrix(study):
    """The medians in short: a line a client, a column a cell."""
    cells = study.cells()
    clients = sorted({key[2] for key in study.kept}, key=client_order)
    rows = [[client] + [f'{middle(study.values(cell, client, RATE), ".1f", 1e-3)}; '
                        f'{middle(study.values(cell, client, CPU))}' for cell in cells]
            for client in clients]
    head = ['client'] + [f'{server} {connections}' for server, connections in cells]
    return ['## k/s; CPU us', '', *table(head, rows)]


def summarise(folder):
    with open(os.path.join(folder, 'raw.csv'), newline='') as file:
        study = Study(list(csv.DictReader(file)))
    clients = {key[2] for key in study.kept}
    lines = ['# Summary', '', *doubts(study)]
    if {OURS, 'wrk'} <= clients:
        lines += targets(study)
    lines += matrix(study)
    if 'wrk' in clients:
        lines += paired(study, 'Paired ratios to wrk', base_wrk)
    if 'floor' in clients:
        lines += paired(study, 'Distance from the floor', base_floor)
    if clients & set(ENGINES):
        lines += paired(study, 'Paired ratios of the engines', base_engine)
    with open(os.path.join(folder, 'summary.md'), 'w') as file:
        file.write('\n'.join(lines + medians(study)))
