"""Tests of the arithmetic and of the readers.

PYTHONPATH=perf python3 -m unittest harness.test_harness
"""
import array
import contextlib
import csv
import http.client
import io
import json
import math
import os
import random
import shutil
import socket
import subprocess
import tempfile
import types
import unittest
from unittest import mock

from . import arrivals, clients, closedloop, measure, openclients, openloop, opensummary, study
from . import servers, streamclients, streams, streamsummary, summary
from .__main__ import cores, parse, timer_cores
from .clients import OURS

WRK = '''Running 5s test @ http://127.0.0.1:9471/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   269.10us  347.64us   4.53ms   97.87%
  Latency Distribution
     50%  222.00us
     75%  239.00us
     90%  259.00us
     99%    2.23ms
  153738 requests in 1.10s, 28.74MB read
'''


def row(client, rate, cpu, repetition='1', verdict='kept', **more):
    base = dict.fromkeys(measure.FIELDS, '')
    return base | {'server': 'fast', 'connections': '64', 'client': client, 'rate': str(rate),
                   'cpu_us': str(cpu), 'repetition': repetition, 'verdict': verdict,
                   'seconds': '5', 'requests': '1000', 'own_count': '1000', 'user_s': '1', 'sys_s': '1',
                   'server_cpu_s': '1', 'wall_s': '1', 'rss_kib': '1024', 'first_recv_ms': '5',
                   'p50_us': '320', 'p99_us': '640'} | more


class Readers(unittest.TestCase):
    def test_wrk_times_come_in_microseconds_whatever_their_unit(self):
        self.assertEqual(clients.read_wrk(WRK), {
            'own_count': 153738, 'own_errors': 0, 'p50_us': 222.0, 'p99_us': 2230.0})

    def test_errors_that_wrk_counts_are_errors(self):
        faults = ('  Socket errors: connect 1, read 2, write 0, timeout 4\n'
                  '  Non-2xx or 3xx responses: 10\n')
        self.assertEqual(clients.read_wrk(WRK + faults)['own_errors'], 17)

    def test_our_percentiles_are_nanoseconds_and_may_be_null(self):
        text = ('{"latency":{"percentiles":{"50.0":320000,"99.0":null}},'
                '"counters":{"total_samples_completed":7,"total_samples_failed":1}}')
        self.assertEqual(clients.read_product(text), {
            'own_count': 7, 'own_errors': 1, 'p50_us': 320.0, 'p99_us': None})


    def test_output_of_another_shape_spoils_the_run_and_not_the_study(self):
        for _, reader in clients.CLIENTS.values():
            for text in ('', 'null', '{}', '[]', 'unable to connect', '10 requests in 1s\n'):
                self.assertIn('unreadable output', measure.heard(reader, text)['verdict'], text)
        self.assertNotIn('verdict', measure.heard(clients.read_wrk, WRK))


class Verdicts(unittest.TestCase):
    OPTIONS = types.SimpleNamespace(background=0.15)

    def verdict(self, **more):
        fine = {'verdict': None, 'requests': 9, 'own_errors': 0, 'send_faults': 0,
                'background_cores': 0.1, 'steal_cores': 0.1}
        return measure.judge(fine | more, self.OPTIONS)

    def test_only_a_clean_run_on_a_quiet_machine_is_kept(self):
        for more, verdict in [
            ({}, 'kept'),
            ({'verdict': 'exit 1: x'}, 'exit 1: x'),
            ({'requests': 0}, 'no request reached the server'),
            ({'own_errors': 2}, 'the client counted 2 errors'),
            ({'send_faults': 1}, 'the server cut 1 connections'),
            ({'background_cores': 0.2}, 'background 0.20 cores'),
            ({'steal_cores': 0.3}, 'steal 0.30 cores'),
        ]:
            self.assertEqual(self.verdict(**more), verdict)


class Summaries(unittest.TestCase):
    def test_ratios_are_paired_by_repetition_and_ignore_runs_left_out(self):
        kept = summary.Study([
            row(OURS, 240, 3), row('wrk', 200, 4),
            row(OURS, 300, 3, '2'), row('wrk', 100, 4, '2', 'background 0.20 cores'),
            row('wrk', 250, 4, '2'), row(OURS, 999, 3, '3')])
        self.assertEqual(kept.ratios(('fast', 64), OURS, 'wrk', 'rate'), [1.2, 1.2])

    def test_littles_law_is_one_for_a_true_p50(self):
        self.assertAlmostEqual(summary.little(row('floor', 200_000, 5)), 1.0)
        self.assertAlmostEqual(summary.little(row('wrk', 200_000, 5, p50_us='160')), 0.5)
        self.assertIsNone(summary.little(row('wrk', 200_000, 5, p50_us='')))

    def test_a_target_is_judged_by_the_median_and_memory_by_the_worst_run(self):
        def targets(mib):
            measured = [(240, 5), (220, 5), (250, mib)] * 3
            rows = [row(OURS, rate, 3, str(n), rss_kib=str(m * 1024))
                    for n, (rate, m) in enumerate(measured)]
            rows += [row('wrk', 200, 4, str(n)) for n in range(9)]
            return '\n'.join(summary.targets(summary.Study(rows)))

        text = targets(mib=25)
        self.assertIn('| requests/s to wrk | fast | 64 | ≥ 1.15 | 1.20 [1.10..1.25] | 9 | yes |', text)
        self.assertIn('| CPU per request to wrk | fast | 64 | ≤ 0.8 | 0.75 [0.75..0.75] | 9 | yes |',
                      text)
        self.assertIn('| peak RSS, MiB | fast | 64 | ≤ 20 | 5.00 [5.00..25.00] | 9 | no |', text)
        self.assertIn('| peak RSS, MiB | fast | 64 | ≤ 20 | 5.00 [5.00..19.00] | 9 | yes |',
                      targets(mib=19))

    def test_few_pairs_meet_no_target(self):
        rows = [row(OURS, 240, 3), row('wrk', 200, 4)]
        text = '\n'.join(summary.targets(summary.Study(rows)))
        self.assertIn('| 1.20 [1.20..1.20] | 1 | (yes, too few) |', text)
        self.assertNotIn('| yes |', text)

    def test_short_runs_say_that_they_are(self):
        warning = 'only show that everything works'
        for seconds, is_told in [('1', True), ('5', False)]:
            text = '\n'.join(summary.doubts(summary.Study([row('wrk', 1, 1, seconds=seconds)])))
            self.assertEqual(warning in text, is_told)

    def test_a_miscount_and_left_out_runs_are_told(self):
        text = '\n'.join(summary.doubts(summary.Study([
            row(OURS, 1, 1, own_count='900'),       # 100 apart, 64 connections
            row('wrk', 1, 1, own_count='940'),      # 60 apart: in flight
            row('wrk', 1, 1, '2', 'background 0.20 cores'),
            row('wrk', 1, 1, '2', 'background 0.31 cores')])))
        self.assertIn('4 runs, 2 kept', text)
        self.assertIn('- left out, background cores: 2', text)
        self.assertIn(f'{OURS} against fast, 1 of 1', text)
        self.assertNotIn('wrk against', text)

    def test_a_summary_is_made_from_the_file_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, 'raw.csv'), 'w', newline='') as file:
                writer = csv.DictWriter(file, measure.FIELDS)
                writer.writeheader()
                writer.writerows([row(OURS, 240, 3), row('wrk', 200, 4)])
            summary.summarise(folder)
            with open(os.path.join(folder, 'summary.md')) as file:
                text = file.read()
        self.assertIn('2 runs, 2 kept', text)
        self.assertIn(f'| fast | 64 | {OURS} / wrk | 1.20 [1.20..1.20] | 0.75 [0.75..0.75] | 1 |',
                      text)


def exponential(count, mean_ns=1e5, seed=7):
    draw = random.Random(seed).expovariate
    return [draw(1 / mean_ns) for _ in range(count)]


def instants(gaps_ns):
    at_ns, all_ns = 1e9, []
    for gap_ns in gaps_ns:
        at_ns += gap_ns
        all_ns.append(at_ns)
    return all_ns


class Arrivals(unittest.TestCase):
    """Gaps whose figures are known on paper, and some that must not pass for them."""

    def test_the_quantiles_of_an_exponential_are_at_no_distance_from_it(self):
        count = 10_000
        gaps = [-1e5 * math.log(1 - (i + 0.5) / count) for i in range(count)]
        self.assertLess(arrivals.ks_exponential(gaps), 2 / count)
        self.assertAlmostEqual(arrivals.variation(gaps), 1, delta=0.002)

    def test_drawn_exponential_gaps_are_as_near_as_chance_allows(self):
        for seed in range(20):
            gaps = exponential(10_000, seed=seed)
            self.assertLess(arrivals.ks_exponential(gaps), 0.0125)     # p = 0.001, Lilliefors
            self.assertAlmostEqual(arrivals.variation(gaps), 1, delta=0.05)

    def test_clockwork_has_no_variation_and_the_distance_of_a_step(self):
        self.assertEqual(arrivals.variation([1e5] * 1000), 0)
        self.assertAlmostEqual(arrivals.ks_exponential([1e5] * 1000), 1 - math.exp(-1))

    def test_even_gaps_from_nothing_to_twice_the_mean_are_no_exponential(self):
        gaps = [2e5 * (i + 0.5) / 10_000 for i in range(10_000)]
        # x/2 and 1 - exp(-x) are farthest apart at x = ln 2.
        self.assertAlmostEqual(arrivals.ks_exponential(gaps), 0.5 - math.log(2) / 2, delta=1e-4)

    def test_bursts_of_ten_are_burstier_than_poisson(self):
        pacing = arrivals.pacing(instants(([0.0] * 9 + [1e6]) * 1000), rate=10_000)
        self.assertAlmostEqual(pacing['gap_cv'], 3, delta=0.01)     # sqrt((9 + 81) / 10)
        self.assertAlmostEqual(pacing['gap_short'], 0.9, delta=0.001)
        self.assertAlmostEqual(pacing['rate_error'], 0, delta=0.001)

    def test_a_rate_that_is_missed_shows(self):
        pacing = arrivals.pacing(instants([1.25e5] * 1000), rate=10_000)
        self.assertAlmostEqual(pacing['rate'], 8000)
        self.assertAlmostEqual(pacing['rate_error'], -0.2)
        self.assertAlmostEqual(pacing['gap_p50_us'], 125)

    def test_a_serial_sender_is_as_far_from_poisson_as_its_floor_says(self):
        send_us = 5
        stretched = [max(gap, send_us * 1e3) for gap in exponential(100_000)]
        floor = arrivals.serial_floor(10_000, send_us)
        self.assertAlmostEqual(floor, 1 - math.exp(-0.05))
        self.assertAlmostEqual(arrivals.ks_exponential(stretched), floor, delta=0.004)
        self.assertAlmostEqual(arrivals.quantile(sorted(stretched), 0.01) / 1e3, send_us)
        self.assertAlmostEqual(arrivals.serial_floor(100_000, send_us, shards=4),
                               1 - math.exp(-0.125))

    def test_too_few_arrivals_say_nothing(self):
        for few in ([], instants([1e5] * 50), [1e9] * 1000):
            self.assertEqual(arrivals.pacing(few, 10_000), {})
        self.assertEqual(arrivals.clockwork_error(instants([1e5] * 50), 10_000), {})

    def test_the_first_tenth_is_left_out(self):
        kept = arrivals.settled(instants([1e5] * 1001))
        self.assertEqual((len(kept), kept[0]), (901, 1e9 + 101 * 1e5))

    def test_a_constant_shift_is_no_error_and_a_late_request_is(self):
        arrived = instants([1e5] * 1000)
        self.assertAlmostEqual(arrivals.clockwork_error(arrived, 10_000)['off_p99_us'], 0, delta=1e-3)
        arrived[500::10] = [at + 3e4 for at in arrived[500::10]]
        error = arrivals.clockwork_error(arrived, 10_000)
        self.assertAlmostEqual(error['off_p50_us'], 0, delta=1e-3)
        self.assertAlmostEqual(error['off_p99_us'], 30, delta=1e-3)

    def test_stamps_since_1970_keep_their_nanoseconds(self):
        arrived = [1_796_039_034_056_300_204 + i * 100_000 + i % 2 * 100 for i in range(1000)]
        self.assertAlmostEqual(arrivals.clockwork_error(arrived, 10_000)['off_p99_us'], 0.05)

    def test_one_bad_second_does_not_spoil_the_median_of_the_seconds(self):
        due = [i * 1e7 for i in range(500)]     # 5 s
        late = [10_000_000 if 100 <= i < 200 else 500 for i in range(500)]
        columns = arrivals.against_log(due, due, [d + l for d, l in zip(due, late)])
        self.assertAlmostEqual(columns['late_second_p99_us'], 0.5)
        self.assertAlmostEqual(columns['late_p99_us'], 10_000)
        self.assertEqual(columns['off_p99_us'], 0)
        self.assertNotIn('off_p99_us', arrivals.against_log(due[1:], due, due))     # one was lost

    def test_a_clock_that_runs_fast_is_found_under_late_requests(self):
        def drift(ppm):
            draw = random.Random(3)
            gap_ns = 1e7 / (1 + ppm / 1e6)
            return arrivals.drift_ppm([
                1e15 + i * gap_ns + (draw.expovariate(1e-6) if draw.random() < 0.1 else 0)
                for i in range(6_000)], rate=10_000, every=100)

        for ppm in (0, 1, -20):
            self.assertAlmostEqual(drift(ppm), ppm, delta=0.05)
        self.assertIsNone(arrivals.drift_ppm([1, 2], rate=10))

    def test_pairs_of_words_come_back_as_two_columns(self):
        first, second = arrivals.read_pairs(array.array('Q', [1, 10, 2, 20]).tobytes())
        self.assertEqual((list(first), list(second)), ([1, 2], [10, 20]))


class OpenReaders(unittest.TestCase):
    def load(self, folder):
        return openclients.Load(1, 1000, 1, 16, [0], None, 43, folder)

    def test_our_result_may_lack_what_another_version_writes(self):
        read = openclients.read_product(is_constant=False)
        counters = {'total_samples_completed': 9, 'total_samples_failed': 0}
        with tempfile.TemporaryDirectory() as folder:
            columns = read(self.load(folder), json.dumps({'counters': counters}), [])
            self.assertEqual(columns.pop('own_count'), 9)
            self.assertEqual(columns.pop('own_errors'), 0)
            self.assertEqual(set(columns.values()), {None, ''})
            phase = os.path.join(folder, 'report', 'phases', 'performance')
            os.makedirs(phase)
            with open(os.path.join(phase, 'intervals.jsonl'), 'w') as lines:
                lines.write('{"lateness":{"p50":1,"p99":30000}}\n{"lateness":{"p99":20000}}\n'
                            '{"lateness":{"percentiles":{"99.0":90000}}}\n{"lateness":null}\n')
            columns = read(self.load(folder), json.dumps({
                'counters': counters, 'lateness': {'percentiles': {'50.0': 210}, 'max': 4000},
                'trust': {'verdict': 'fail', 'checks': [
                    {'id': 'D1', 'verdict': 'fail'}, {'id': 'D5', 'verdict': 'ok', 'value': 0.7},
                    {'id': 'D8', 'verdict': 'warn'}]}}), [])
        self.assertEqual(columns['late_second_p99_us'], 30)
        self.assertEqual((columns['late_p50_us'], columns['late_max_us']), (0.21, 4))
        self.assertEqual((columns['trust'], columns['trust_faults']), ('fail', 'D1:fail D8:warn'))
        self.assertEqual(columns['busy'], 0.7)

    def test_what_oha_had_in_flight_at_the_end_is_no_error(self):
        def errors(distribution):
            return openclients.read_oha(self.load('.'), json.dumps({
                'statusCodeDistribution': {'200': 5}, 'errorDistribution': distribution}), [])

        self.assertEqual(errors({'aborted due to deadline': 3}), {'own_count': 5, 'own_errors': 0})
        self.assertEqual(errors({'connection refused': 3})['own_errors'], 3)

    def test_output_of_another_shape_spoils_the_run_and_not_the_study(self):
        for name, client in openclients.CLIENTS.items():
            if name == 'vegeta':        # says nothing on stdout
                continue
            for text in ('', 'null', '[]', 'unable to connect'):
                said = measure.heard(lambda t: client.read(self.load('.'), t, []), text)
                self.assertIn('unreadable output', said['verdict'], (name, text))

    def test_an_untrusted_run_counts_and_a_failed_or_unrecorded_one_does_not(self):
        ours, wrk2 = openclients.name_of('poisson', 'hybrid'), 'wrk2'
        fine = {'exit': 0, 'recorded': 9, 'requests': 9, 'unstamped': 0, 'verdict': None}
        self.assertIsNone(openloop.fault(fine, ours, ''))
        self.assertIsNone(openloop.fault(fine | {'exit': 6}, ours, ''))
        self.assertEqual(openloop.fault(fine | {'exit': 6}, wrk2, 'no'), 'exit 6: no')
        self.assertEqual(openloop.fault(fine | {'exit': 2}, ours, 'no'), 'exit 2: no')
        self.assertEqual(openloop.fault(fine | {'recorded': 8}, ours, ''), 'the record is full')
        self.assertIn('without a kernel stamp', openloop.fault(fine | {'unstamped': 1}, ours, ''))


def open_row(client, rate=10_000, repetition='1', **more):
    base = dict.fromkeys(openloop.RUN_FIELDS, '')
    return base | {'study': 'precision', 'client': client, 'rate_asked': str(rate), 'seconds': '8',
                   'repetition': repetition, 'verdict': 'kept', 'shards': '1', 'trust': 'ok'} | more


class OpenSummaries(unittest.TestCase):
    HYBRID = openclients.name_of('poisson', 'hybrid')
    CONSTANT = openclients.name_of('constant', 'inline')

    def precision(self, late='0.2', ks='0.06', cv='0.1'):
        rows = []
        for repetition in '123':
            rows += [
                open_row('reference poisson', repetition=repetition, gap_p1_us='5', ks_exp='0.05'),
                open_row(self.HYBRID, repetition=repetition, late_p50_us=late, ks_exp=ks,
                         late_second_p99_us='30', client_cores='0.5'),
                open_row(self.CONSTANT, repetition=repetition, gap_cv=cv, off_p50_us='2'),
                open_row('wrk2', repetition=repetition, gap_cv='3', off_p50_us='300'),
            ]
        return '\n'.join(opensummary.precision(opensummary.Study(rows)))

    def test_targets_are_judged_on_both_sides_of_their_bounds(self):
        text = self.precision()
        for line in ('| lateness p50, us | 10000 | loadgen-uring poisson hybrid | ≤ 0.3 | '
                     '0.2 [0.2..0.2] | 3 | yes |',
                     '| ≤ 0.06377 | 0.06 [0.06..0.06] | 3 | yes |',     # 1 - exp(-.05) + .015
                     '| CV of gaps | 10000 | loadgen-uring constant inline | ≤ 0.2 | '
                     '0.1 [0.1..0.1] | 3 | yes |'):
            self.assertIn(line, text)
        self.assertNotIn('| no |', text)
        self.assertEqual(self.precision('0.4', '0.07', '0.3').count('| 3 | no |'), 3)

    def test_pairs_are_made_of_clients_that_were_asked_for_the_same(self):
        text = self.precision()
        self.assertIn(f'| 10000 | {self.CONSTANT} / wrk2 | 0.00667 [0.00667..0.00667] |', text)
        self.assertIn(f'| 10000 | {self.HYBRID} / reference poisson |', text)
        self.assertNotIn(f'{self.HYBRID} / wrk2', text)

    def steps(self, *words):
        """words: the verdicts of three runs at 20k, 30k, ..."""
        rows = [open_row(self.HYBRID, 20_000 + 10_000 * step, repetition, study='rate', trust=word)
                for step, three in enumerate(words)
                for repetition, word in zip('123', three.split())]
        return opensummary.highest(opensummary.Study(rows), self.HYBRID)

    def test_the_highest_rate_is_counted_from_below(self):
        self.assertEqual(self.steps('ok ok ok', 'ok warn ok', 'ok ok fail', 'ok fail fail'),
                         (30_000, 40_000))
        self.assertEqual(self.steps('ok ok ok', 'fail fail ok', 'ok ok ok'), (20_000, 20_000))
        self.assertEqual(self.steps('fail fail fail'), (None, None))

    def test_a_run_without_a_verdict_is_no_pass(self):
        study_ = opensummary.Study([open_row(self.HYBRID, 20_000, study='rate', trust='')])
        self.assertEqual(opensummary.highest(study_, self.HYBRID), (None, None))

    def test_memory_that_grows_late_and_a_drift_are_told(self):
        def soak(last_kib, drift):
            rows = [dict.fromkeys(openloop.SOAK_FIELDS, '') | {
                'study': 'soak', 'client': self.HYBRID, 'rate_asked': '10000', 'seconds': '600',
                'verdict': 'sample', 'at_s': str(at), 'rss_kib': str(kib)}
                for at, kib in ((10, 1000), (60, 8000), (590, last_kib))]
            rows.append(rows[0] | {'verdict': 'kept', 'at_s': '600', 'drift_ppm': drift,
                                   'product_clock': '{"error_ns_max": 40}'})
            return '\n'.join(opensummary.soak(rows))

        good, bad = soak(8100, '-0.02'), soak(9000, '1.5')
        self.assertIn('| ≤ 1 | 0.0200 | yes |', good)
        self.assertIn('| ≤ 512 | 100 | yes |', good)
        self.assertIn('| clock, own account: error_ns_max | 40 |', good)
        self.assertIn('| ≤ 1 | 1.5000 | no |', bad)
        self.assertIn('| ≤ 512 | 1000 | no |', bad)

    def test_the_file_alone_tells_which_summary_it_needs(self):
        for fields, rows, title in [
                (openloop.RUN_FIELDS, [open_row('wrk2')], '## 10000 requests/s (ideal gap 100 us)'),
                (openloop.RUN_FIELDS, [open_row(self.HYBRID, study='rate')], '## Steps'),
                (openloop.RUN_FIELDS, [open_row(self.HYBRID, study='idle')], '## Cores'),
                (openloop.RUN_FIELDS, [open_row('wrk2', verdict='exit 2: no')], 'left out, exit 2: 1'),
                (measure.FIELDS, [row('wrk', 200, 4)], '## k/s; CPU us')]:
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, 'raw.csv'), 'w', newline='') as file:
                    writer = csv.DictWriter(file, fields)
                    writer.writeheader()
                    writer.writerows(rows)
                study.summarise(folder)
                with open(os.path.join(folder, 'summary.md')) as file:
                    self.assertIn(title, file.read())


class OpenPlans(unittest.TestCase):
    def test_a_dedicated_timer_needs_a_core_that_is_left_over(self):
        for arguments, allowed, timer in [
                ([], [0, 1], []), ([], [0, 1, 2], []), ([], [0, 1, 2, 3], [2]),
                (['--client-cores', '0,2-3', '--server-core', '1'], list(range(16)), [4]),
                (['--timer-core', '7'], list(range(16)), [7])]:
            options = parse(['precision', *arguments])
            self.assertEqual(timer_cores(options, allowed), timer)
            options.timer_cores = timer
            names = openloop.clients_of(options)
            self.assertEqual(openclients.name_of('poisson', 'dedicated') in names, bool(timer))

    def test_our_command_names_its_shards_and_its_timer(self):
        load = openclients.Load(9, 100_000, 8, 128, [2, 3], 4, 43, '/f')
        command, *_ = openclients.CLIENTS[openclients.name_of('constant', 'dedicated')]
        text = ' '.join(command(load))
        self.assertIn(' constant http://127.0.0.1:9/ -R 100000 -d 8s -c 128 --cores 2,3 '
                      '--timer dedicated --timer-core 4 --seed 43 ', text)
        self.assertEqual(openloop.cores_of(load), [2, 3, 4])

    def test_a_list_of_cores_has_ranges(self):
        self.assertEqual(cores('0,2-4,9'), [0, 2, 3, 4, 9])

    def test_each_mode_has_its_own_length(self):
        self.assertEqual(parse(['soak']).seconds, 600)
        self.assertEqual(parse(['soak', '--smoke']).seconds, 3)
        self.assertEqual(parse(['precision', '--seconds', '6']).seconds, 6)
        self.assertEqual(parse(['rate']).rates[-1], 90_000)

    def test_shared_cores_and_unknown_clients_are_refused(self):
        for wrong in (['--client-cores', '0,1'], ['--timer-core', '0'], ['--clients', 'wrk'],
                      ['--rates', '0'], ['--servers', 'fast'], ['--connections', '1,2']):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                parse(['precision', *wrong])


class Plans(unittest.TestCase):
    def test_a_spinning_client_meets_a_spinning_server_at_one_connection_only(self):
        spinning = [cell for cell, names in closedloop.plan(parse(['peers'])) if closedloop.SPIN[0] in names]
        self.assertEqual(spinning, [('fast', 1)])

    def test_a_choice_of_clients_and_servers_is_obeyed(self):
        options = parse(['peers', '--clients', 'wrk', '--servers', 'fast', '--connections', '8'])
        self.assertEqual(closedloop.plan(options), [(('fast', 8), ['wrk'])])

    def test_unknown_names_and_one_core_for_both_are_refused(self):
        for wrong in (['--clients', 'w'], ['--servers', 'x'], ['--repetitions', '0'],
                      ['--server-core', '0']):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                parse(['peers', *wrong])


SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'samples')


class StreamReaders(unittest.TestCase):
    """On files that the tools wrote about 16 streams of 16 chunks, TTFT 100 ms, gaps of 20 ms, on a
    busy machine."""

    def read(self, client, name, text=''):
        with tempfile.TemporaryDirectory() as folder:
            load = streamclients.Load(1, 16, 4, [0], 16, folder)
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy(os.path.join(SAMPLES, f'{client}.json'), path)
            return streamclients.CLIENTS[client].read(load, text)

    def test_the_figures_of_each_rival_become_microseconds(self):
        for client, name, expected in [
            ('aiperf', 'aiperf/profile_export_aiperf.json', {
                'own_count': 114, 'own_errors': 0, 'ttft_p50_us': 134687.351,
                'ttft_p99_us': 184684.49678, 'gap_p50_us': 28011.9975, 'gap_p99_us': 54983.29102}),
            ('guidellm', 'guidellm.json', {
                'own_count': 64, 'own_errors': 0, 'ttft_p50_us': 122935.29510,
                'ttft_p99_us': 155184.03053, 'gap_p50_us': 20681.93754,
                'gap_p99_us': 22495.04725}),
            ('endpoints', 'endpoints/performance/result_summary.json', {
                'own_count': 176, 'own_errors': 0, 'ttft_p50_us': 111809.056,
                'ttft_p99_us': 122125.07}),
        ]:
            columns = self.read(client, name)
            for column, value in expected.items():
                self.assertAlmostEqual(columns[column], value, delta=1e-4, msg=(client, column))
        self.assertGreater(columns['gap_p50_us'], 20_000)

    def test_our_figures_are_nanoseconds_and_may_be_null(self):
        read = streamclients.read_product
        text = json.dumps({'counters': {'total_samples_completed': 9, 'total_samples_failed': 1},
                           'ttft': {'percentiles': {'50.0': 50_010_000, '99.0': None}},
                           'trust': {'verdict': 'warn'}})
        load = streamclients.Load(1, 16, 4, [0], 16, '/nowhere')
        self.assertEqual(read(load, text), {
            'own_count': 9, 'own_errors': 1, 'trust': 'warn', 'ttft_p50_us': 50_010,
            'ttft_p99_us': None, 'gap_p50_us': None, 'gap_p99_us': None})

    def test_a_distribution_of_nothing_is_not_zero(self):
        nothing = {'successful': {'count': 0, 'percentiles': {'p50': 0.0, 'p99': 0.0}}}
        metrics = {'request_totals': {'successful': 0, 'errored': 0},
                   'time_to_first_token_ms': nothing, 'inter_token_latency_ms': nothing}
        with tempfile.TemporaryDirectory() as folder:
            load = streamclients.Load(1, 16, 4, [0], 16, folder)
            with open(os.path.join(folder, 'guidellm.json'), 'w') as file:
                json.dump({'benchmarks': [{'metrics': metrics}]}, file)
            self.assertIsNone(streamclients.read_guidellm(load, '')['ttft_p50_us'])
            for benchmarks in ([], None, [{}]):
                with open(os.path.join(folder, 'guidellm.json'), 'w') as file:
                    json.dump({'benchmarks': benchmarks}, file)
                said = measure.heard(lambda t: streamclients.read_guidellm(load, t), '')
                self.assertIn('unreadable output', said['verdict'])

    def test_output_of_another_shape_spoils_the_run_and_not_the_study(self):
        load = streamclients.Load(1, 16, 4, [0], 16, '/nowhere')
        for name, client in streamclients.CLIENTS.items():
            for text in ('', 'null', '{}', '[]', 'unable to connect'):
                said = measure.heard(lambda t: client.read(load, t), text)
                self.assertIn('unreadable output', said['verdict'], (name, text))


class Truths(unittest.TestCase):
    def test_ttft_and_gaps_are_those_of_whole_responses(self):
        def word(serial, chunks):
            return serial << 32 | chunks

        record = [(1000, word(0, 0)), (1500, word(1, 0)), (6000, word(0, 1)), (9000, word(0, 2)),
                  (9500, word(1, 1)), (9600, word(2, 0)), (13_000, word(0, 3))]
        at_ns, words = zip(*record)
        columns = streams.truths(at_ns, words, chunks=3, streams=2)
        self.assertEqual(columns, {
            'true_count': 1, 'true_ttft_p50_us': 5.0, 'true_ttft_p99_us': 5.0,
            'true_gap_p50_us': 3.5, 'true_gap_p99_us': 3.99})    # of 3 and 4
        empty = streams.truths([], [], chunks=3, streams=2)
        self.assertEqual((empty['true_count'], empty['true_ttft_p50_us']), (0, None))

    def test_a_rate_is_that_of_the_middle_of_a_run(self):
        even = [i * 1e6 for i in range(1000)]
        self.assertAlmostEqual(streams.steady_rate(even, 8), 1000)
        # A lone request before it all, and stragglers after it.
        odd = [-9e9, *even, *(2e9 + i * 1e8 for i in range(10))]
        self.assertAlmostEqual(streams.steady_rate(odd, 8), 1000)
        self.assertIsNone(streams.steady_rate(even, 256), 'not even four rounds')


@unittest.skipUnless(shutil.which('cc'), 'no C compiler')
class Mock(unittest.TestCase):
    """The paced endpoint itself, asked by another client."""
    FIRST_US, GAP_US, CHUNKS = 20_000, 5_000, 5

    @classmethod
    def setUpClass(cls):
        cls.build = tempfile.TemporaryDirectory(prefix='perf-')
        source = os.path.join(servers.RIVALS, 'sseserver.c')
        subprocess.run(['cc', '-O1', '-o', os.path.join(cls.build.name, 'sseserver'), source],
                       check=True)

    @classmethod
    def tearDownClass(cls):
        cls.build.cleanup()

    def ask(self, flags, times=2):
        """The bodies of a few answers on one connection, the counters and the truth."""
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            port = probe.getsockname()[1]
        core = min(os.sched_getaffinity(0))
        with mock.patch.object(servers, 'BUILD', self.build.name), servers.Streams(
                port, core, 20, [*flags, '-n', str(self.CHUNKS)], True) as server:
            connection = http.client.HTTPConnection('127.0.0.1', port, timeout=10)
            bodies = []
            for _ in range(times):
                connection.request('POST', '/v1/chat/completions', body='{"stream":true}')
                bodies.append(connection.getresponse().read().decode())
            connection.request('GET', '/v1/models')
            self.assertIn('"id":"mock"', connection.getresponse().read().decode())
            connection.close()
            return bodies, server.counts(), server.truth()

    def test_every_pace_sends_the_same_text(self):
        own = ['-f', str(self.FIRST_US), '-g', str(self.GAP_US)]
        for flags in (own, [*own, '-k', '2'], [*own, '-k', '8'], ['-r', '10000'], ['-r', '0'],
                      ['-r', '0', '-k', '3'], ['-r', '0', '-k', '5']):
            bodies, counts, (_, words) = self.ask(flags)
            for body in bodies:
                *events, last, rest = body.split('\n\n')
                self.assertEqual((last, rest), ('data: [DONE]', ''), flags)
                said = [json.loads(event.removeprefix('data: ')) for event in events]
                texts = [choice['delta'].get('content') for part in said
                         for choice in part['choices']]
                self.assertEqual(texts, ['', *[' hello'] * self.CHUNKS, None], flags)
                self.assertEqual(said[-1]['usage']['completion_tokens'], self.CHUNKS)
                self.assertEqual(len(events[1] + '\n\n'), 250)
            self.assertEqual((counts['requests'], counts['connections'] > 1), (2, True))
            self.assertEqual(counts['chunks'], 2 * self.CHUNKS, flags)
            self.assertEqual(counts['events'], 2 * (self.CHUNKS + 4), flags)
            self.assertEqual([word & 0xffffffff for word in words][-1], self.CHUNKS)

    def test_no_chunk_of_a_stream_leaves_before_its_instant(self):
        flags = ['-f', str(self.FIRST_US), '-g', str(self.GAP_US)]
        _, _, (at_ns, words) = self.ask(flags)
        self.assertEqual([(word >> 32, word & 0xffffffff) for word in words],
                         [(serial, sent) for serial in (0, 1) for sent in range(6)])
        for begin in (0, 6):
            request, *writes = at_ns[begin:begin + 6]
            for i, at in enumerate(writes):
                due_ns = (self.FIRST_US + i * self.GAP_US) * 1000
                self.assertGreaterEqual(at - request, due_ns)


def stream_row(client, pace='own', streams_='256', repetition='1', **more):
    base = dict.fromkeys(streams.FIELDS, '')
    return base | {'stream_study': 'streaming', 'client': client, 'pace': pace,
                   'streams': streams_, 'repetition': repetition, 'verdict': 'kept',
                   'seconds': '5', 'requests': '900', 'own_count': '900', 'user_s': '1',
                   'sys_s': '1', 'rss_kib': '1024'} | more


class StreamSummaries(unittest.TestCase):
    def lines(self, ours_us, ttft_us, aiperf_rate):
        rows = []
        for repetition in '123':
            rows += [
                stream_row(OURS, 'turn', repetition=repetition, cpu_us=ours_us),
                stream_row('uring', 'turn', repetition=repetition, cpu_us='5.2'),
                stream_row('epoll', 'turn', repetition=repetition, cpu_us='5'),
                stream_row(OURS, repetition=repetition, true_ttft_p50_us='50000',
                           ttft_p50_us=ttft_us),
                stream_row(OURS, 'short', '32', repetition, rate='50000'),
                stream_row('aiperf', 'short', '32', repetition, rate=aiperf_rate)]
        return streamsummary.targets(streamsummary.Study(rows))

    def met(self, lines, start):
        return [line.split('|')[-2].strip() for line in lines if line.startswith(f'| {start}')]

    def test_targets_are_judged_on_both_sides_of_their_bounds(self):
        good, bad = self.lines('5.4', '50040', '400'), self.lines('6.6', '49940', '600')
        for start in ('client CPU per chunk, us | turn', 'CPU per chunk to the best engine',
                      f'TTFT error, median, us, {OURS} |', 'requests/s to aiperf'):
            self.assertEqual(self.met(good, start), ['yes'], start)
            self.assertEqual(self.met(bad, start), ['no'], start)
        self.assertEqual(self.met(good, 'requests/s to endpoints'), ['no data'])
        best = next(line for line in good if line.startswith('| CPU per chunk to the best'))
        self.assertIn('1.08 [1.08..1.08]', best)    # epoll was the cheaper one

    def test_the_summary_is_made_from_the_file_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, 'raw.csv'), 'w', newline='') as file:
                writer = csv.DictWriter(file, streams.FIELDS)
                writer.writeheader()
                writer.writerows([
                    stream_row('aiperf', true_ttft_p50_us='50000', true_ttft_p99_us='50900',
                               ttft_p50_us='94000', ttft_p99_us='250900', own_count='400'),
                    stream_row('guidellm', verdict='exit 1: no')])
            study.summarise(folder)
            with open(os.path.join(folder, 'summary.md')) as file:
                text = file.read()
        self.assertIn('| own | 256 | aiperf | 50.000 / 50.900 | 94.000 / 250.900 | '
                      '+44000.0 / +200000.0 |', text)
        self.assertIn('left out, exit 1: 1', text)
        self.assertIn("**own count and the mock's differ**", text)


class StreamPlans(unittest.TestCase):
    def test_engines_and_spinning_meet_the_cells_that_say_something_of_them(self):
        for cell, client, expected in [
                (('own', 256), 'uring', False), (('own', 256), streamclients.SPIN, True),
                (('turn', 256), 'uring', True), (('separate', 256), streamclients.SPIN, False),
                (('short', 32), 'aiperf', True)]:
            self.assertEqual(streams.fits(cell, client), expected, (cell, client))

    def test_our_command_asks_for_the_streams_of_the_mock(self):
        load = streamclients.Load(9, 256, 5, [2, 3], 64, '/f')
        text = ' '.join(streamclients.CLIENTS[streamclients.SPIN].command(load))
        self.assertIn(' concurrency http://127.0.0.1:9/v1 -c 256 -d 5s --model mock --isl 16 --osl 64 '
                      '--prompts 64 --tokenizer none --no-preflight --cores 2,3 --spin ', text)
        engine = streamclients.CLIENTS['uring'].command(load)
        self.assertEqual(engine[1:], ['uring', *'-c 256 -d 5 -p 9 -r chat'.split()])

    def test_exact_times_to_the_first_token_are_those_of_single_requests(self):
        with tempfile.TemporaryDirectory() as folder:
            load = streamclients.Load(9, 4, 5, [0], 64, folder, True)
            command = streamclients.CLIENTS[streamclients.OURS].command(load)
            self.assertIn('--records', command)
            os.mkdir(os.path.join(folder, 'ours'))
            with open(os.path.join(folder, 'ours/requests.jsonl'), 'w') as file:
                for phase, ttft in [('performance', 3000), ('performance', 1000), ('warmup', 1),
                                    ('performance', 2000), ('performance', None)]:
                    file.write(json.dumps({'phase': phase, 'ttft_ns': ttft}) + '\n')
            counters = {'total_samples_completed': 3, 'total_samples_failed': 1}
            said = streamclients.read_product(load, json.dumps({'counters': counters}))
            self.assertEqual((said['ttft_p50_us'], said['ttft_p99_us']), (2.0, 3.0))

    def test_both_studies_are_modes_with_a_length_of_their_own(self):
        self.assertEqual(study.loop_of(parse(['streaming'])), streams)
        self.assertEqual(parse(['rivals-llm', '--seconds', '20']).seconds, 20)
        self.assertEqual(parse(['rivals-llm']).repetitions, 3)
        for wrong in (['--clients', 'wrk'], ['--servers', 'fast']):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                parse(['streaming', *wrong])


if __name__ == '__main__':
    unittest.main()
