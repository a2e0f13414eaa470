"""summary.md of a study of streams from its raw.csv; it reads nothing else."""
import collections
import csv
import os
import statistics

from .clients import ENGINES, OURS
from .streamclients import CLIENTS, RIVALS, SPIN
from .summary import KEPT, middle, number, runs_told, spread, table

RUNS_LEAST = 3          # fewer say nothing about a target
TO_BEST_ENGINE_MOST = 1.10


class Study:
    """The kept rows, by cell, client and repetition."""

    def __init__(self, rows):
        self.rows = rows
        self.kept = collections.defaultdict(dict)       # (cell, client): {repetition: row}
        for row in rows:
            if row['verdict'] == KEPT:
                self.kept[cell_of(row), row['client']][row['repetition']] = row

    def cells(self):
        """By pace and number of streams."""
        return sorted({cell for cell, _ in self.kept})

    def clients(self, cell):
        there = [client for at, client in self.kept if at == cell]
        return sorted(there, key=list(CLIENTS).index)

    def values(self, cell, client, pick):
        """One value a run, from a column or a row; runs without one are left out."""
        take = pick if callable(pick) else lambda row: number(row, pick)
        values = (take(row) for row in self.kept.get((cell, client), {}).values())
        return [value for value in values if value is not None]

    def ratios(self, cell, client, base, column):
        """client / base in each repetition that has both."""
        ours, theirs = (self.kept.get((cell, name), {}) for name in (client, base))
        pairs = [(number(ours[rep], column), number(theirs[rep], column))
                 for rep in ours if rep in theirs]
        return [a / b for a, b in pairs if a is not None and b]

    def to_best_engine(self, cell):
        """Our CPU per chunk over that of the engine that was cheapest in the same repetition."""
        ratios = []
        for repetition, row in self.kept.get((cell, OURS), {}).items():
            theirs = [number(self.kept[cell, name][repetition], 'cpu_us') for name in ENGINES
                      if repetition in self.kept.get((cell, name), {})]
            if theirs:
                ratios.append(number(row, 'cpu_us') / min(theirs))
        return ratios


def cell_of(row):
    return row['pace'], int(row['streams'])


def error(name, key):
    """What a client says minus what is true, us."""
    def of(row):
        said, true = number(row, f'{name}_{key}_us'), number(row, f'true_{name}_{key}_us')
        return None if said is None or true is None else said - true
    return of


def targets(study):
    rows = []

    def row(what, cell, values, least=None, most=None):
        bound = f'≥ {least:g}' if most is None else f'≤ {most:g}'
        judged = values and abs(statistics.median(values))
        is_met = values and (judged >= least if most is None else judged <= most)
        verdict = 'yes' if is_met else 'no'
        if len(values) < RUNS_LEAST:
            verdict = f'({verdict}, too few)' if values else 'no data'
        rows.append([what, *cell, bound, spread(values), len(values), verdict])

    for cell, most_us in ((('turn', 256), 6.5), (('turn', 1000), 7.5), (('separate', 256), 4)):
        if cell in study.cells():
            row('client CPU per chunk, us', cell, study.values(cell, OURS, 'cpu_us'), most=most_us)
    for cell in (('turn', 256), ('turn', 1000)):
        if cell in study.cells():
            row('CPU per chunk to the best engine', cell, study.to_best_engine(cell),
                most=TO_BEST_ENGINE_MOST)
    if ('coalesced', 256) in study.cells():
        cell = 'coalesced', 256
        row('million chunks/s', cell,
            study.values(cell, OURS, lambda r: number(r, 'chunk_rate') / 1e6), least=1)
    if ('own', 256) in study.cells():
        cell = 'own', 256
        for client, most_us in ((OURS, 50), (SPIN, 20)):
            row(f'TTFT error, median, us, {client}', cell,
                study.values(cell, client, error('ttft', 'p50')), most=most_us)
    if ('short', 32) in study.cells():
        cell = 'short', 32
        for rival, least in (('aiperf', 100), ('endpoints', 7)):
            row(f'requests/s to {rival}', cell, study.ratios(cell, OURS, rival, 'rate'),
                least=least)
    return ['## Targets', '', 'A target is met if the median is on the right side of the bound.', '',
            *table(['target', 'pace', 'streams', 'bound', 'measured', 'n', 'met'], rows)]


def load_table(study):
    rows = []
    for cell in study.cells():
        for client in study.clients(cell):
            def value(quantity, form='.1f', scale=1, where=(cell, client)):
                return middle(study.values(*where, quantity), form, scale)

            rows.append([*cell, client, value('rate'), value('chunk_rate', '.1f', 1e-3),
                         value('cpu_us', '.2f'),
                         value(lambda row: number(row, 'user_s') / cpu_s(row), '.0%'),
                         value('rss_kib', '.1f', 1 / 1024), value('first_recv_ms', '.0f'),
                         value('pace_slips', '.0f'), len(study.kept[cell, client])])
    return ['## Load and its cost', '',
            'Medians. Rates by the mock; CPU of the whole client, from its start to its end, over '
            'the chunks that the mock sent it.', '',
            *table(['pace', 'streams', 'client', 'requests/s', 'k chunks/s', 'CPU us a chunk',
                    'of it user', 'peak RSS MiB', 'exec to first request ms', 'slips', 'runs'],
                   rows)]


def cpu_s(row):
    return number(row, 'user_s') + number(row, 'sys_s')


def times(study):
    rows = []
    for cell in study.cells():
        for client in study.clients(cell):
            if not study.values(cell, client, 'ttft_p50_us'):
                continue

            def value(quantity, form='.3f', scale=1e-3, where=(cell, client)):
                return middle(study.values(*where, quantity), form, scale)

            def both(name, start=''):
                return f"{value(f'{start}{name}_p50_us')} / {value(f'{start}{name}_p99_us')}"

            def off(name):
                return ' / '.join(value(error(name, key), '+.1f', 1) for key in ('p50', 'p99'))

            rows.append([*cell, client, both('ttft', 'true_'), both('ttft'), off('ttft'),
                         both('gap', 'true_'), both('gap'), off('gap'),
                         f"{value('true_count', '.0f', 1)} / {value('own_count', '.0f', 1)}"])
    return ['## TTFT and gaps: the truth, and what is reported', '',
            'p50 / p99, medians over the runs. The truth is the mock\'s: from the kernel\'s receipt '
            'of the request, which on loopback is inside the client\'s send, to right before the '
            'send of the chunk; so it is the least that a client can see. Errors are reported minus '
            'true. As gaps, `guidellm` and `endpoints` have no more than the means of each response '
            '(ITL, TPOT), whose p99 hides what single chunks do.', '',
            *table(['pace', 'streams', 'client', 'true TTFT ms', 'reported ms', 'error us',
                    'true gap ms', 'reported ms', 'error us', 'responses, true / own count'], rows)]


def paired(study):
    rows = []
    for cell in study.cells():
        for base in (*ENGINES, *RIVALS):
            rates = study.ratios(cell, OURS, base, 'rate')
            if rates:
                rows.append([*cell, f'{OURS} / {base}', spread(rates),
                             spread(study.ratios(cell, OURS, base, 'cpu_us')), len(rates)])
    return ['## Paired ratios', '',
            'Median [least..most] over the repetitions that have both runs.', '',
            *table(['pace', 'streams', 'pair', 'requests/s', 'CPU per chunk', 'pairs'], rows)]


def doubts(study):
    """What a reader has to know before believing the tables."""
    lines = runs_told(study)
    for (cell, client), rows in study.kept.items():
        off = [row for row in rows.values() if miscount(row)]
        if off:
            lines.append(f'- **own count and the mock\'s differ** by more than the streams open at '
                         f'the end: {client}, {cell[0]} {cell[1]}, {len(off)} of {len(rows)} runs, '
                         f"e.g. {off[0]['own_count']} and {off[0]['requests']} requests")
    return lines + ['']


def miscount(row):
    return abs(int(row['requests']) - int(row['own_count'])) > int(row['streams'])


def summarise(folder):
    with open(os.path.join(folder, 'raw.csv'), newline='') as file:
        study = Study(list(csv.DictReader(file)))
    lines = ['# Summary', '', *doubts(study), *targets(study), *load_table(study), *times(study),
             *paired(study)]
    with open(os.path.join(folder, 'summary.md'), 'w') as file:
        file.write('\n'.join(lines))
