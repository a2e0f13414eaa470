//! The texts of help: examples, forms and exit codes.

/// Shown when nothing was typed.
pub const EXAMPLES: &str = "\
loadgen-uring max-throughput                         this host, embedded endpoint
loadgen-uring http://127.0.0.1:8080/                 how fast is that endpoint
loadgen-uring --cores 0-15 max-throughput http://10.0.0.2/      from 16 cores
loadgen-uring poisson http://10.0.0.2/ -R 10k -d 30s     10 000 a second, come what may
loadgen-uring doctor                     can this host run it; more with --help
";

/// Below the help of the program.
pub const AFTER_HELP: &str = "\
Examples:
  loadgen-uring max-throughput    the embedded endpoint: the tool's own ceiling
  loadgen-uring http://127.0.0.1:8080/    a bare URL is max-throughput, 10 s
  loadgen-uring --cores 0-15 max-throughput http://10.0.0.2/
  loadgen-uring concurrency http://10.0.0.2/api -c 32 -n 100k --warmup 2s
  loadgen-uring poisson http://10.0.0.2/api -R 10k --slo p99:5ms
  loadgen-uring http://10.0.0.2/ -b '{\"id\": 1}' -H 'X-Team: a' -d 30s
  loadgen-uring concurrency http://127.0.0.1:8000/v1 -c 32 -n 1k --isl 550 --osl 128
  loadgen-uring poisson http://127.0.0.1:8000/v1 -R 5 --dataset questions.jsonl
  loadgen-uring probe http://127.0.0.1:8000         what answers there
  loadgen-uring serve --listen 127.0.0.1:8080       an endpoint to try things on

`loadgen-uring COMMAND --help` lists the flags of a command; all of them work
before and after it.

Exit codes: 0 complete; 1 incomplete, or no request succeeded; 2 wrong usage;
3 host or endpoint could not be set up; 4 an --slo was missed or a --fail-if
true; 6 not to be trusted; 130 second Ctrl-C.";

/// No doc comment on the field: rustdoc would take the brackets for links.
pub const URL: &str = "http[s]://HOST[:PORT][/PATH]; several are the samples that are sent, with \
                       prompts the servers that share them; none: the embedded endpoint in this \
                       process";

/// Of `probe`.
pub const URL_PROBE: &str = "http[s]://HOST[:PORT], with or without /v1 or the path of an API";

/// Of `ab`.
pub const URLS_AB: &str = "The two URLs, the one to compare with first";

/// `-c` of a closed loop.
pub const CONNECTIONS: &str = "Connections over all shards together, each with one request in \
                               flight [default: 64 per shard]";

/// `-c` where it says what the load is.
pub const CONNECTIONS_REQUIRED: &str = "Requests in flight over all shards together, each on a \
                                        connection of its own (required)";

/// `-c` of an open loop.
pub const CONNECTIONS_OPEN: &str = "Connections that are open before the first request, over all \
                                    shards together [default: 64]";

/// `-c` of `ab`.
pub const CONNECTIONS_AB: &str = "Requests in flight over all shards together; with -R, \
                                  connections open before the first request [default: 64 per \
                                  shard, with -R 64]";

/// `-d` of `ab`.
pub const DURATION_AB: &str = "Stop each run after this time [default: 5s if -n is not given]";

/// `--repeats` of `ab`.
pub const REPEATS_AB: &str = "Blocks of three runs in random order: A, A as the control, and B; at \
                              least 4 [default: 6]";

/// Below the help of a command.
pub const MAX_THROUGHPUT: &str = "\
Examples:
  loadgen-uring max-throughput http://127.0.0.1:8080/ -d 30s --warmup 2s
  loadgen-uring http://127.0.0.1:8080/a http://127.0.0.1:8080/b -c 256";

/// Below the help of a command.
pub const CONCURRENCY: &str = "\
Examples:
  loadgen-uring concurrency http://127.0.0.1:8080/ -c 1 -n 10k
  loadgen-uring concurrency http://127.0.0.1:8080/ -c 64 --abort-if 'failed>1%'
  loadgen-uring concurrency http://127.0.0.1:8000/v1 -c 32 --dataset questions.jsonl";

/// Below the help of a command.
pub const POISSON: &str = "\
Examples:
  loadgen-uring poisson http://127.0.0.1:8080/ -R 10k -d 30s --slo p99:5ms
  loadgen-uring poisson http://127.0.0.1:8080/ -R 500 -d auto --precision p99:5%";

/// Below the help of a command.
pub const CONSTANT: &str = "\
Examples:
  loadgen-uring constant http://127.0.0.1:8080/ -R 90/m -n 30
  loadgen-uring constant http://127.0.0.1:8080/ -R 1k --jitter 10%";

/// Below the help of a command.
pub const GAMMA: &str = "\
Examples:
  loadgen-uring gamma http://127.0.0.1:8080/ -R 2k --burstiness 0.25 -d 1m
  loadgen-uring gamma http://127.0.0.1:8080/ -R 2k --ramp linear --ramp-from 100 --ramp-time 1m";

/// Below the help of a command.
pub const AB: &str = "\
-R compares under Poisson arrivals, -c N with N requests in flight, neither
with every connection always busy.

Examples:
  loadgen-uring ab http://127.0.0.1:8080/ http://127.0.0.1:8081/ -R 1k -d 5s
  loadgen-uring ab http://127.0.0.1:8080/old http://127.0.0.1:8080/new -c 32";

/// Below the help of a command.
pub const PROBE: &str = "\
Examples:
  loadgen-uring probe http://127.0.0.1:8000
  loadgen-uring probe https://10.0.0.2/v1 --cacert ca.pem --model tiny --json";

/// The arms of `compare`.
pub const ARM: &str = "[NAME=]ARM: a report directory, a result file, a glob, - for stdin, or \
                       several with commas between; two or more, the first is the baseline";

/// Below the help of a command.
pub const COMPARE: &str = "\
Examples:
  loadgen-uring compare results/before results/after
  loadgen-uring compare old='results/*-old' new='results/*-new' --fail-if 'p99>+10%'
  loadgen-uring http://127.0.0.1:8080/ --json | loadgen-uring compare base.json -";
