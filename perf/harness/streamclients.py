"""The clients of the studies of streams: the command line of each, and what it says of its figures.

When requests came and chunks left is the mock's own record; from here comes only what a client
reports of them, its own count and its errors.
"""
import collections
import json
import math
import os
import shutil

from .clients import ENGINES, OURS, engine, product_path
from .measure import core_list
from .openclients import UNTRUSTED, dig
from .servers import BUILD

# is_exact: instants of single requests are compared, not the buckets of a histogram.
Load = collections.namedtuple('Load', 'port connections seconds cores chunks folder is_exact',
                              defaults=[False])
# command(load); read(load, stdout) -> columns; passes: statuses of a run that counts.
Client = collections.namedtuple('Client', 'command read passes', defaults=[(0,)])

MODEL = 'mock'
PROMPT_WORDS = 16
OWN_PROMPTS = 64        # ours are repeated: making more would be most of the CPU of a short run
PROMPTS = 20_000        # more than any rival that does not repeat them can send
RIVAL_PROGRAMS = {'aiperf': 'aiperf', 'guidellm': 'guidellm', 'endpoints': 'inference-endpoint'}


def prepare(load):
    """Files for the rivals: prompts in the form of each, and a tokenizer that needs no network, in
    which a word is a token."""
    words = [f'w{number}' for number in range(64)]
    with open(in_folder(load, 'single_turn.jsonl'), 'w') as turns, \
            open(in_folder(load, 'prompts.jsonl'), 'w') as prompts:
        for number in range(PROMPTS):
            text = ' '.join(words[(number + i) % len(words)] for i in range(PROMPT_WORDS))
            prompts.write(json.dumps({'prompt': text, 'output_tokens_count': load.chunks}) + '\n')
            if number < len(words):     # aiperf begins again
                turns.write(json.dumps({'text': text}) + '\n')
    tokenizer = in_folder(load, 'tokenizer')
    os.mkdir(tokenizer)
    vocabulary = {word: i for i, word in enumerate(['<unk>', 'hello', *words])}
    for name, value in {
        'config.json': {'model_type': 'llama'},
        'tokenizer_config.json': {
            'tokenizer_class': 'PreTrainedTokenizerFast', 'unk_token': '<unk>',
            'chat_template': "{% for m in messages %}{{ m['content'] }} {% endfor %}"},
        'tokenizer.json': {
            'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [],
            'normalizer': None, 'pre_tokenizer': {'type': 'WhitespaceSplit'},
            'post_processor': None, 'decoder': None,
            'model': {'type': 'WordLevel', 'vocab': vocabulary, 'unk_token': '<unk>'}},
    }.items():
        with open(os.path.join(tokenizer, name), 'w') as file:
            json.dump(value, file)


def in_folder(load, name):
    return os.path.join(load.folder, name)


def host(load):
    return f'http://127.0.0.1:{load.port}'


def product(*flags):
    def command(load):
        return [product_path(), 'concurrency', host(load) + '/v1', '-c', str(load.connections),
                '-d', f'{load.seconds}s', '--model', MODEL, '--isl', str(PROMPT_WORDS),
                '--osl', str(load.chunks), '--prompts', str(OWN_PROMPTS), '--tokenizer', 'none',
                '--no-preflight',
                '--cores', core_list(load.cores), *flags, '--json', '-q',
                *(['--records', '--report-dir', in_folder(load, 'ours')] if load.is_exact else
                  ['--report-dir', 'none'])]
    return command


def read_product(load, text):
    result = json.loads(text)
    exact = exact_ttft(in_folder(load, 'ours/requests.jsonl')) if load.is_exact else {}
    return {'own_count': result['counters']['total_samples_completed'],
            'own_errors': result['counters']['total_samples_failed'],
            'trust': dig(result, 'trust', 'verdict'),
            **figures(1e-3, 'ttft', lambda key: dig(result, 'ttft', 'percentiles', key)),
            **figures(1e-3, 'gap', lambda key: dig(result, 'chunk_delta', 'percentiles', key)),
            **exact}


def exact_ttft(path):
    """The percentiles of the single requests: a bucket of the histogram is up to 0.1 % wide, which
    at 50 ms is as much as the error that is looked for."""
    with open(path) as file:
        ttft = sorted(line['ttft_ns'] for line in map(json.loads, file)
                      if line['phase'] == 'performance' and line['ttft_ns'] is not None)
    rank = {'50.0': 0.5, '99.0': 0.99}
    return figures(1e-3, 'ttft', lambda key:
                   ttft[max(0, math.ceil(rank[key] * len(ttft)) - 1)] if ttft else None)


def figures(unit_us, name, percentile):
    """The median and the 99th percentile of a distribution as columns; None where there is none."""
    values = {'p50': percentile('50.0'), 'p99': percentile('99.0')}
    return {f'{name}_{key}_us': None if value is None else value * unit_us
            for key, value in values.items()}


def engine_of_streams(name):
    def command(load):
        return [*engine(name)(load), '-r', 'chat']
    return command


def read_engine(_load, text):
    said = json.loads(text)
    return {'own_count': said['requests'], 'own_errors': said['errors'],
            'own_events': said['chunks']}


def aiperf(load):
    return [find('aiperf'), 'profile', '-m', MODEL, '-u', host(load), '--endpoint-type', 'chat',
            '--streaming', '--concurrency', str(load.connections),
            '--benchmark-duration', str(load.seconds), '--benchmark-grace-period', '5',
            '--tokenizer', in_folder(load, 'tokenizer'), '--use-server-token-count',
            '--input-file', in_folder(load, 'single_turn.jsonl'),
            '--custom-dataset-type', 'single_turn', '--osl', str(load.chunks), '--ui', 'none',
            '--no-server-metrics', '--no-gpu-telemetry',
            '--artifact-dir', in_folder(load, 'aiperf')]


def read_aiperf(load, _text):
    with open(in_folder(load, 'aiperf/profile_export_aiperf.json')) as file:
        said = json.load(file)

    def of(metric):
        return lambda key: dig(said, metric, {'50.0': 'p50', '99.0': 'p99'}[key])

    return {'own_count': round(said['request_count']['avg']),
            'own_errors': sum(dig(kind, 'count') or 0 for kind in said['error_summary']),
            **figures(1e3, 'ttft', of('time_to_first_token')),
            **figures(1e3, 'gap', of('inter_chunk_latency'))}


def guidellm(load):
    return [find('guidellm'), 'run',
            '--backend', f'kind=openai_http,target={host(load)},model={MODEL}',
            '--profile', f'kind=concurrent,streams={load.connections}',
            '--constraint', f'kind=max_duration,seconds={load.seconds}',
            '--data', f"kind=json_file,path={in_folder(load, 'prompts.jsonl')}",
            '--tokenizer', f"kind=hf_auto,model={in_folder(load, 'tokenizer')}",
            '--output', f"kind=json,path={in_folder(load, 'guidellm.json')}", '--disable-console']


def read_guidellm(load, _text):
    with open(in_folder(load, 'guidellm.json')) as file:
        said = json.load(file)['benchmarks'][0]['metrics']

    def of(metric):
        values = said[metric]['successful']
        if not values['count']:         # its percentiles are 0 then
            return lambda _key: None
        return lambda key: values['percentiles'][{'50.0': 'p50', '99.0': 'p99'}[key]]

    return {'own_count': said['request_totals']['successful'],
            'own_errors': said['request_totals']['errored'],
            **figures(1e3, 'ttft', of('time_to_first_token_ms')),
            **figures(1e3, 'gap', of('inter_token_latency_ms'))}    # means of requests


def endpoints(load):
    return [find('endpoints'), 'benchmark', 'online', '--endpoint-config.endpoints', host(load),
            '--model-params.name', MODEL, '--model-params.streaming', 'on',
            '--model-params.tokenizer-name', in_folder(load, 'tokenizer'),
            '--max-output-tokens', str(load.chunks), '--dataset', in_folder(load, 'prompts.jsonl'),
            '--load-pattern', 'concurrency', '--target-concurrency', str(load.connections),
            '--num-samples', str(PROMPTS * load.seconds),
            '--runtime.min-duration-ms', str(load.seconds * 1000),
            '--runtime.max-duration-ms', str(load.seconds * 1000),
            # More workers than cores, and connections opened ahead, cost it more than they bring.
            '--client.num-workers', str(len(load.cores)), '--client.warmup-connections', '0',
            '--client.min-required-connections', '0', '--report-dir', in_folder(load, 'endpoints')]


def read_endpoints(load, _text):
    with open(in_folder(load, 'endpoints/performance/result_summary.json')) as file:
        said = json.load(file)
    return {'own_count': said['n_samples_completed'], 'own_errors': said['n_samples_failed'],
            **figures(1e-3, 'ttft', lambda key: dig(said, 'ttft', 'percentiles', key)),
            **figures(1e-3, 'gap', lambda key: dig(said, 'tpot', 'percentiles', key))}  # means


SPIN = f'{OURS} --spin'
RIVALS = tuple(RIVAL_PROGRAMS)
CLIENTS = {
    OURS: Client(product(), read_product, (0, UNTRUSTED)),
    SPIN: Client(product('--spin'), read_product, (0, UNTRUSTED)),
    **{name: Client(engine_of_streams(name), read_engine) for name in ENGINES},
    'aiperf': Client(aiperf, read_aiperf),
    'guidellm': Client(guidellm, read_guidellm),
    'endpoints': Client(endpoints, read_endpoints),
}


def find(name):
    """A rival's program: $AIPERF, $GUIDELLM, $ENDPOINTS, else in its environment below perf/build,
    else on PATH; None if it is not there."""
    chosen, program = os.environ.get(name.upper()), RIVAL_PROGRAMS[name]
    return shutil.which(chosen or os.path.join(BUILD, name, 'bin', program)) or (
        None if chosen else shutil.which(program))


def program(name):
    """What is run for a client; None if it is not there."""
    if name in RIVALS:
        return find(name)
    load = Load(port=1, connections=1, seconds=1, cores=[0], chunks=1, folder='.')
    return shutil.which(CLIENTS[name].command(load)[0])
