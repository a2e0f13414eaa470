//! The integration tests, in one binary. Each module holds one kind of claim; `support` holds what
//! they stand on.
//!
//! The tests see the program from outside: its arguments, exit code, output, files, and the bytes
//! that reach an independent server. Load tests run under both I/O back ends: `cargo test --test it
//! uring::` picks one.

mod support; // the independent server, the harness, seccomp and signals; with tests of its own

mod ground_truth; // the independent server does what its scripts say

mod ab; // two endpoints under the same load, a verdict
mod awkward; // legal but odd answers are successes, cut ones failures, nothing is retried in secret
mod compare; // finished runs side by side, gates on their difference
mod count; // -n, -d, -c, warm-up and several URLs, exact at the server
mod documents; // every flag is told, no link is dead
mod embedded; // no URL: the tool's own endpoint; `serve`
mod file; // result files, --json, secrets
mod floor; // this host's own latency beside the result
mod hostile; // endpoints that fail: counted, reported, never a hang
mod inference; // models, first requests, datasets, probe
mod interrupt; // Ctrl-C once and twice
mod llama; // a real inference server, plain and behind nginx with TLS
mod nginx; // a real server
mod open_loop; // a schedule in real time: arrivals, connections, queues, accounting
mod platform; // io_uring refused, small limits
mod precision; // -d auto
mod repeats; // --repeats, and compare on what it leaves
mod request; // what is on the wire
mod setup; // refused, unresolvable, out of limits: exit 3
mod streams; // tokens in real time, against what a paced server writes
mod tidy; // the rules of docs/STYLE.md
mod timeout; // every timeout, and the drain
mod tls; // https, against nginx
mod trusted; // believed or not, exit code 6
mod usage; // wrong flags: exit 2
