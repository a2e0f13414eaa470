"""summary.md of an open-loop study from its raw.csv; it reads nothing else."""
import collections
import csv
import json
import os
import statistics

from .arrivals import serial_floor
from .clients import OURS
from .openclients import CLIENTS, PATTERNS, REFERENCE, RIVALS, TIMERS, name_of
from .summary import KEPT, grouped, middle, number, spread, table

RUNS_LEAST = 3          # fewer say nothing about a target
SECONDS_LEAST = 3       # shorter runs are mostly start and end
KS_SLACK = 0.015        # above the serial-send floor
KS_RATES, CV_RATES, LATE_RATE = (1_000, 10_000), (1_000, 10_000), 10_000
CV_MOST, LATE_P50_US_MOST, LATE_SECOND_P99_US_MOST = 0.2, 0.3, 40
IDLE_RATE, IDLE_CORES_MOST = 100, 0.05
RATE_LEAST, RATE_GOAL = 50_000, 80_000
DRIFT_PPM_MOST = 1
SETTLED_SHARE = 0.1     # of a soak; memory that grows after it is a leak
GROWTH_KIB_MOST = 512   # of page tables and cells of histograms that are touched late


LATE = ('late_p50_us', 'late_p99_us', 'late_second_p99_us')


class Study:
    """The kept rows, by rate, client and repetition."""

    def __init__(self, rows):
        self.rows = rows
        self.kept = collections.defaultdict(dict)       # (rate, client): {repetition: row}
        for row in rows:
            if row['verdict'] == KEPT:
                self.kept[int(row['rate_asked']), row['client']][row['repetition']] = row

    def rates(self):
        return sorted({rate for rate, _ in self.kept})

    def clients(self, rate):
        there = [client for at, client in self.kept if at == rate]
        return sorted(there, key=list(CLIENTS).index)

    def values(self, rate, client, column):
        """One value a run; runs without one are left out."""
        values = (number(row, column) for row in self.kept.get((rate, client), {}).values())
        return [value for value in values if value is not None]

    def ratios(self, rate, client, base, column):
        """client / base in each repetition that has both; nothing is divided by 0."""
        ours, theirs = (self.kept.get((rate, name), {}) for name in (client, base))
        pairs = [(number(ours[rep], column), number(theirs[rep], column))
                 for rep in ours if rep in theirs]
        return [a / b for a, b in pairs if a is not None and b]

    def send_us(self, rate):
        """What one send costs, as the gaps of the reference sender show it: the 1st percentile of
        its exponential gaps, in which it sent as fast as it could."""
        values = self.values(rate, REFERENCE['poisson'], 'gap_p1_us')
        return statistics.median(values) if values else None


def figure(study, rate, client, column, form='.1f', scale=1):
    return middle(study.values(rate, client, column), form, scale)


def three(study, rate, client, columns, form='.1f'):
    return ' / '.join(figure(study, rate, client, column, form) for column in columns)


def verdicts(study, rate, client):
    words = [row['trust'] for row in study.kept.get((rate, client), {}).values() if row['trust']]
    return ', '.join(f'{count} {word}' for word, count in collections.Counter(words).items()) or '-'


def at_rate(study, rate):
    lines = [f'## {rate} requests/s (ideal gap {1e6 / rate:g} us)', '']
    rows = []
    for client in study.clients(rate):
        rows.append([
            client, figure(study, rate, client, 'rate_error', '+.2%'),
            three(study, rate, client, ('gap_p1_us', 'gap_p50_us', 'gap_p99_us')),
            figure(study, rate, client, 'gap_cv', '.3f'),
            figure(study, rate, client, 'gap_short', '.1%'),
            figure(study, rate, client, 'ks_exp', '.3f'),
            three(study, rate, client, ('off_p50_us', 'off_p99_us'), '.2f'),
            three(study, rate, client, LATE, '.2f'),
            figure(study, rate, client, 'late_max_us', '.0f'),
            figure(study, rate, client, 'client_cores', '.2f'), verdicts(study, rate, client),
            three(study, rate, client, ('steal_cores', 'background_cores'), '.2f'),
            len(study.kept[rate, client])])
    return lines + table(
        ['client', 'rate error', 'gap p1 / p50 / p99 us', 'CV of gaps', 'gaps < 0.2 ideal',
         'KS to exp', 'off schedule p50 / p99 us', 'late p50 / p99 / p99 of seconds us',
         'late max us', 'cores', 'trust', 'steal / background', 'runs'], rows)


def floors(study):
    rows = []
    for rate in study.rates():
        send_us = study.send_us(rate)
        if send_us is None:
            continue
        fastest_us = min(filter(None, map(study.send_us, study.rates())))
        for client in study.clients(rate):
            if CLIENTS[client].gaps != 'poisson':
                continue
            shards = shards_of(study, rate, client)
            floor = serial_floor(rate, send_us, shards)
            distances = study.values(rate, client, 'ks_exp')
            rows.append([rate, client, f'{send_us:.2f}', f'{floor:.3f}',
                         f'{serial_floor(rate, fastest_us, shards):.3f}',
                         spread(distances, '.3f'),
                         spread([ks - floor for ks in distances], '+.3f')])
    if not rows:
        return []
    return ['## Serial-send floor', '',
            'A sender that needs s for each request stretches every exponential gap below s, a '
            'share of 1 - exp(-rate s / shards). s is the 1st percentile of the gaps of `reference '
            'poisson` at that rate, median over its runs. Where gaps below s are rarer than 1 %, '
            'that percentile is the distribution\'s own, and the floor is 0.01 at most; the '
            'stricter floor beside it takes the smallest s of all rates. With n gaps chance alone '
            'gives a KS distance of about 0.7 to 1.1 / sqrt(n), which is in neither floor.',
            '', *table(['rate', 'client', 's us', 'floor', 'stricter floor', 'KS to exp',
                        'above the floor'], rows)]


def paired(study):
    """Ours against each rival and the reference that was asked for the same gaps."""
    columns = ('off_p50_us', 'off_p99_us', 'late_p50_us', 'late_second_p99_us', 'gap_cv', 'ks_exp',
               'client_cores')
    rows = []
    for rate in study.rates():
        for client in study.clients(rate):
            for base in study.clients(rate):
                is_pair = client.startswith(OURS) and (
                    base in RIVALS or base == REFERENCE[CLIENTS[client].gaps])
                if not is_pair or CLIENTS[client].gaps != CLIENTS[base].gaps:
                    continue
                ratios = [study.ratios(rate, client, base, column) for column in columns]
                if any(ratios):
                    rows.append([rate, f'{client} / {base}', *(spread(r, '.3g') for r in ratios),
                                 max(map(len, ratios))])
    if not rows:
        return []
    return ['## Paired ratios', '',
            'Median [least..most] over the repetitions that have both runs.', '',
            *table(['rate', 'pair', 'off schedule p50', 'off schedule p99', 'late p50',
                    'late p99 of seconds', 'CV of gaps', 'KS to exp', 'cores', 'pairs'], rows)]


def judged(what, rate, client, values, most):
    """A row of the targets."""
    verdict = 'yes' if values and statistics.median(values) <= most else 'no'
    if len(values) < RUNS_LEAST:
        verdict = f'({verdict}, too few)' if values else 'no data'
    return [what, rate, client, f'≤ {most:.4g}', spread(values, '.3g'), len(values), verdict]


def targets(rows):
    if not rows:
        return []
    return ['## Targets', '', 'A target is met if the median is within the bound.', '',
            *table(['target', 'rate', 'client', 'bound', 'measured', 'n', 'met'], rows)]


def shards_of(study, rate, client):
    if client == REFERENCE['poisson']:
        return 1
    return int(next(iter(study.kept[rate, client].values()))['shards'])


def precision_targets(study):
    rows = []

    def row(what, rate, client, column, most):
        if (rate, client) in study.kept:
            rows.append(judged(what, rate, client, study.values(rate, client, column), most))

    for timer in TIMERS:
        poisson, constant = (name_of(pattern, timer) for pattern in PATTERNS)
        row('lateness p50, us', LATE_RATE, poisson, 'late_p50_us', LATE_P50_US_MOST)
        row('lateness, median of the p99 of each second, us', LATE_RATE, poisson,
            'late_second_p99_us', LATE_SECOND_P99_US_MOST)
        for rate in KS_RATES:
            send_us = study.send_us(rate)
            if send_us is not None and (rate, poisson) in study.kept:
                floor = serial_floor(rate, send_us, shards_of(study, rate, poisson))
                row('KS to exp, floor + 0.015', rate, poisson, 'ks_exp', floor + KS_SLACK)
        for rate in CV_RATES:
            row('CV of gaps', rate, constant, 'gap_cv', CV_MOST)
    return targets(rows)


def precision(study):
    lines = precision_targets(study)
    for rate in study.rates():
        lines += at_rate(study, rate)
    return lines + floors(study) + paired(study)


def highest(study, client):
    """(up to which rate no run failed, up to which most did not); all lower rates passed, too."""
    none_failed = most_passed = None
    is_whole = is_most = True
    for rate in study.rates():
        words = [row['trust'] for row in study.kept.get((rate, client), {}).values()]
        failed = sum(word in ('fail', '') for word in words)    # no verdict is no pass
        is_whole = is_whole and bool(words) and failed == 0
        is_most = is_most and failed * 2 < len(words)
        none_failed = rate if is_whole else none_failed
        most_passed = rate if is_most else most_passed
    return none_failed, most_passed


def faults(study, rate, client):
    words = collections.Counter(
        word for row in study.kept[rate, client].values() for word in row['trust_faults'].split())
    return ', '.join(f'{count} {word}' for word, count in sorted(words.items())) or '-'


def rate_steps(study):
    clients = sorted({client for _, client in study.kept}, key=list(CLIENTS).index)
    bests = {client: highest(study, client) for client in clients}
    lines = ['## Highest rate with a verdict that is not FAIL', '',
             'Counted from below: every lower step holds, too. A run without a verdict is no '
             'pass.', '']
    lines += table(['client', 'no run failed', 'most did not fail'],
                   [[client, *(best or '-' for best in bests[client])] for client in clients])
    bounds = [[what, client, f'≥ {least}', bests[client][1] or '-',
               'yes' if (bests[client][1] or 0) >= least else 'no']
              for client in clients for what, least in (('bound', RATE_LEAST), ('goal', RATE_GOAL))]
    rows = []
    for client in clients:
        for rate in study.rates():
            if not study.kept.get((rate, client)):
                continue
            rows.append([
                client, rate, verdicts(study, rate, client), faults(study, rate, client),
                figure(study, rate, client, 'rate', '.0f'),
                three(study, rate, client, LATE, '.2f'),
                three(study, rate, client, ('service_p50_us', 'service_p99_us')),
                figure(study, rate, client, 'client_cores', '.2f'),
                figure(study, rate, client, 'busy', '.3g'), len(study.kept[rate, client])])
    lines += table(['what', 'client', 'bound', 'most did not fail up to', 'met'], bounds)
    return lines + ['## Steps', ''] + table(
        ['client', 'asked', 'trust', 'checks that failed or warned', 'achieved',
         'late p50 / p99 / p99 of seconds us', 'service p50 / p99 us', 'cores', 'busy (D5)',
         'runs'], rows)


def idle(study):
    ours = name_of('poisson', 'hybrid')
    rows = []
    if (IDLE_RATE, ours) in study.kept:
        rows = [judged('cores while idle', IDLE_RATE, ours,
                       study.values(IDLE_RATE, ours, 'client_cores'), most=IDLE_CORES_MOST)]
    lines = targets(rows)
    lines += ['## Cores', '',
              'CPU of the whole process over its whole life, start-up included.', '']
    return lines + table(['rate', 'client', 'cores', 'late p50 / p99 us', 'runs'], [
        [rate, client, spread(study.values(rate, client, 'client_cores'), '.4f'),
         three(study, rate, client, ('late_p50_us', 'late_p99_us'), '.2f'),
         len(study.kept[rate, client])]
        for rate in study.rates() for client in study.clients(rate)])


def soak(rows):
    ends = [row for row in rows if row['verdict'] != 'sample']
    lines = []
    for end in ends:
        samples = [row for row in rows if row['verdict'] == 'sample'
                   and (row['client'], row['rate_asked']) == (end['client'], end['rate_asked'])]
        lines += soak_of(end, samples)
    return lines


def soak_of(end, samples):
    life_s = number(end, 'at_s')
    settled = [row for row in samples if number(row, 'at_s') >= SETTLED_SHARE * life_s]
    growth = [number(settled[-1], 'rss_kib') - number(settled[0], 'rss_kib')] if settled else []
    drift = [abs(value) for value in [number(end, 'drift_ppm')] if value is not None]
    clock = json.loads(end['product_clock'] or '{}')
    facts = [
        ['verdict of the run', end['verdict']], ['trust', end['trust'] or '-'],
        ['checks that failed or warned', end['trust_faults'] or '-'],
        ['length, s', f'{life_s:.1f}'], ['requests', end['requests']],
        ['rate error', text_of(end, 'rate_error', '+.4%')],
        ['late p50 / p99 / p99 of seconds / max us', ' / '.join(
            text_of(end, column, '.2f') for column in
            ('late_p50_us', 'late_p99_us', 'late_second_p99_us', 'late_max_us'))],
        ['clock drift seen by the recorder, ppm', text_of(end, 'drift_ppm', '+.4f')],
        *([f'clock, own account: {key}', value] for key, value in sorted(clock.items())),
        ['memory when settled, at the end, peak, KiB', ' / '.join([
            *(settled[i]['rss_kib'] for i in ((0, -1) if settled else ())), end['rss_kib']])],
        ['cores', text_of(end, 'client_cores', '.3f')],
    ]
    lines = [f"## {end['client']}, {end['rate_asked']}/s", '', *table(['what', 'value'], facts)]
    bounds = [['clock drift seen by the recorder, ppm', f'≤ {DRIFT_PPM_MOST}', *once(
                  drift, DRIFT_PPM_MOST, '.4f')],
              [f'growth of memory after the first {SETTLED_SHARE:.0%}, KiB',
               f'≤ {GROWTH_KIB_MOST}', *once(growth, GROWTH_KIB_MOST, '.0f')]]
    lines += ['Targets, of one run:', '', *table(['target', 'bound', 'measured', 'met'], bounds)]
    return lines + ['Drift: medians of the arrivals\' error against the constant schedule in the '
                    'first and the last tenth, both on the recorder\'s CLOCK_MONOTONIC.', '']


def once(values, most, form):
    if not values:
        return ['-', 'no data']
    return [format(values[0], form), 'yes' if values[0] <= most else 'no']


def text_of(row, column, form):
    value = number(row, column)
    return '-' if value is None else format(value, form)


def doubts(rows):
    """What a reader has to know before believing the tables."""
    rows = [row for row in rows if row['verdict'] != 'sample']
    dropped = collections.Counter(
        row['verdict'].split(':')[0] for row in rows if row['verdict'] != KEPT)
    lines = ['## Runs', '', f'{len(rows)} runs, {len(rows) - sum(dropped.values())} kept.']
    if any(float(row['seconds']) < SECONDS_LEAST for row in rows):
        lines.append('- **runs this short only show that everything works**')
    lines += [f'- left out, {reason}: {count}'
              for reason, count in sorted(grouped(dropped).items())]
    starved = [row for row in rows if int(row.get('starved') or 0)]
    if starved:
        most = max(int(row['starved']) for row in starved)
        lines.append(f'- in {len(starved)} runs the reference sender had to wait for a connection, '
                     f'at most {most} times: a stalled server, or too few connections')
    return lines + ['']


BODIES = {'precision': precision, 'rate': rate_steps, 'idle': idle}


def summarise(folder):
    with open(os.path.join(folder, 'raw.csv'), newline='') as file:
        rows = list(csv.DictReader(file))
    lines = ['# Summary', '', *doubts(rows)]
    kinds = {row['study'] for row in rows}
    if kinds == {'soak'}:
        lines += soak(rows)
    elif kinds:
        study = Study(rows)
        lines += BODIES[kinds.pop()](study) if study.kept else []
    with open(os.path.join(folder, 'summary.md'), 'w') as file:
        file.write('\n'.join(lines))
