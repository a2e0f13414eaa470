"""Tests of the arithmetic and of the readers.

PYTHONPATH=perf python3 -m unittest harness.test_harness
"""
import contextlib
import csv
import io
import os
import tempfile
import types
import unittest

from . import clients, closedloop, measure, summary
from .__main__ import parse
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


class Plans(unittest.TestCase):
    def test_a_spinning_client_meets_a_spinning_server_at_one_connection_only(self):
        spinning = [cell for cell, names in closedloop.plan(parse(['peers'])) if closedloop.SPIN[0] in names]
        self.assertEqual(spinning, [('fast', 1)])

    def test_the_engine_study_reads_streams_with_the_engines_only(self):
        cells = dict(closedloop.plan(parse(['engines'])))
        self.assertEqual(cells['sse', 256], list(clients.ENGINES))
        self.assertIn(OURS, cells['fast', 64])

    def test_a_choice_of_clients_and_servers_is_obeyed(self):
        options = parse(['peers', '--clients', 'wrk', '--servers', 'fast', '--connections', '8'])
        self.assertEqual(closedloop.plan(options), [(('fast', 8), ['wrk'])])

    def test_unknown_names_and_one_core_for_both_are_refused(self):
        for wrong in (['--clients', 'w'], ['--servers', 'x'], ['--repetitions', '0'],
                      ['--server-core', '0']):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                parse(['peers', *wrong])


if __name__ == '__main__':
    unittest.main()
