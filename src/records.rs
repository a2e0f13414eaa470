//! What shards tell of single queries, taken by a thread of its own while the load runs:
//! `requests.jsonl`, one line for each query that has ended, and the texts that wait to be counted.
//!
//! The keys are those of the interface: instants in ns of CLOCK_MONOTONIC, what is not known is
//! null. A success has a latency, a failure has a kind in its place. Secrets that the endpoint
//! echoes are masked.

mod outputs;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use loadgen_shards::answer::{AnswerFacts, FinishReason};
use loadgen_shards::record::{Record, RecordSource};
use loadgen_shards::recorder::Tpot;
use serde::Serialize;
use serde_json::Value;

use crate::config::Keep;
use crate::plan::Plan;
pub use outputs::Uncounted;

/// The thread that writes records.
#[derive(Debug)]
pub struct Records {
    thread: JoinHandle<Written>,
    is_over: Arc<AtomicBool>,
}

/// What it has done.
#[derive(Debug, Default)]
pub struct Written {
    /// Why something is missing; `None`: nothing is that reached the writer.
    pub error: Option<String>,
    /// What waits to be counted.
    pub uncounted: Option<Uncounted>,
}

impl Records {
    /// Takes what the shards' `sources` bring, in their order: lines for a file at `path`, and
    /// answers to count.
    pub fn start(
        path: Option<&Path>,
        uncounted: Option<Uncounted>,
        plan: Arc<Plan>,
        sources: Vec<RecordSource>,
    ) -> io::Result<Records> {
        let file = path.map(File::create).transpose()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let is_told = Arc::clone(&is_over);
        let writer = Writer {
            names: plan.phases.iter().map(|phase| phase.name.clone()).collect(),
            run: loadgen_shards::sys::time::realtime_ns(),
            plan,
            sources,
            out: file.map(|file| BufWriter::with_capacity(OUT_BYTES, file)),
            written: Written { error: None, uncounted },
        };
        let thread = std::thread::Builder::new().name("records".to_owned());
        let thread = thread.spawn(move || writer.run(&is_told))?;
        Ok(Records { thread, is_over })
    }

    /// Once no shard sends any more: writes what is left, and waits until it is on disk.
    pub fn finish(self) -> Written {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| Written {
            uncounted: None,
            error: Some("the writer of records failed; this is a bug of loadgen-uring".to_owned()),
        })
    }
}

struct Writer {
    plan: Arc<Plan>,
    names: Vec<String>,
    /// Begins every id of this run.
    run: u64,
    sources: Vec<RecordSource>,
    out: Option<BufWriter<File>>,
    written: Written,
}

impl Writer {
    fn run(mut self, is_over: &AtomicBool) -> Written {
        loop {
            // Read before the rings: what was sent before the end is then seen.
            let is_last = is_over.load(Ordering::Acquire);
            let count = self.drain();
            if is_last {
                break;
            }
            if count == 0 {
                std::thread::sleep(POLL);
            }
        }
        if let Some(mut out) = self.out.take()
            && let Err(error) = out.flush().and_then(|()| out.get_ref().sync_all())
        {
            self.failed(&error);
        }
        self.written
    }

    /// Writes what has come. Returns how much that was.
    fn drain(&mut self) -> u64 {
        let mut count = 0;
        for shard in 0..self.sources.len() {
            while let Some(mut record) = self.sources[shard].take() {
                count += 1;
                if let Err(error) = self.write(shard, &record) {
                    self.failed(&error);
                }
                if let Some(text) = record.text.take() {
                    self.sources[shard].give_back(text);
                }
            }
        }
        count
    }

    /// The first reason is the one to tell; the rings are emptied all the same.
    fn failed(&mut self, error: &io::Error) {
        self.written.error.get_or_insert_with(|| error.to_string());
    }

    fn write(&mut self, shard: usize, record: &Record) -> io::Result<()> {
        if self.written.error.is_some() {
            return Ok(());
        }
        if let Some(uncounted) = &mut self.written.uncounted {
            uncounted.keep(record)?;
        }
        let Some(out) = &mut self.out else { return Ok(()) };
        let mask = |text: &str| self.plan.secrets.masked(text);
        let mut line = Line::of(record, shard);
        let request = &self.plan.table.requests[record.request as usize];
        line.isl = line.isl.or((request.prompt_tokens > 0).then_some(request.prompt_tokens));
        line.query_id =
            format!("{:016x}{:04x}{:012x}", self.run, record.phase as u16, record.position);
        line.phase = self.names.get(record.phase as usize).map_or("", String::as_str);
        if let (Some(text), Keep::Texts) = (&record.text, self.plan.records) {
            let table = &self.plan.table;
            line.texts = Some(Texts {
                prompt: masked_value(prompt_of(&table.arena[request.range.clone()]), &mask),
                output: mask(&text.visible),
                reasoning: (!text.hidden.is_empty()).then(|| mask(&text.hidden)),
                chunk_ns: instants(record.facts.first_token_ns, &text.gaps_ns),
            });
        }
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")
    }
}

/// One line.
#[derive(Debug, Serialize)]
struct Line<'a> {
    query_id: String,
    sample_index: u32,
    phase: &'a str,
    conversation_id: Option<&'a str>,
    turn: Option<u32>,
    shard: usize,
    connection: Option<u32>,
    scheduled_ns: Option<u64>,
    dispatched_ns: Option<u64>,
    sent_ns: Option<u64>,
    first_byte_ns: Option<u64>,
    first_token_ns: Option<u64>,
    last_token_ns: Option<u64>,
    complete_ns: Option<u64>,
    latency_ns: Option<u64>,
    service_ns: Option<u64>,
    ttft_ns: Option<u64>,
    tpot_ns: Option<u64>,
    lateness_ns: Option<u64>,
    status: Option<u16>,
    failure: Option<&'static str>,
    finish_reason: Option<&'static str>,
    isl: Option<u32>,
    osl: Option<u32>,
    chunks: Option<u32>,
    bytes: u64,
    #[serde(flatten)]
    texts: Option<Texts>,
}

#[derive(Debug, Serialize)]
struct Texts {
    prompt: Value,
    output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    chunk_ns: Vec<u64>,
}

impl Line<'_> {
    /// All but the names and the texts.
    fn of(record: &Record, shard: usize) -> Line<'static> {
        let (stamps, facts) = (&record.stamps, &record.facts);
        let origin_ns = stamps.origin_ns();
        let is_success = record.failure.is_none();
        let since = |from_ns: u64, to_ns: u64| {
            (is_success && from_ns > 0 && to_ns > 0).then(|| to_ns.saturating_sub(from_ns))
        };
        let tpot_ns = match Tpot::of(facts) {
            Tpot::Is(tpot_ns) if is_success => Some(tpot_ns),
            _ => None,
        };
        Line {
            query_id: String::new(),
            sample_index: record.request,
            phase: "",
            conversation_id: None,
            turn: None,
            shard,
            connection: record.slot,
            scheduled_ns: known(stamps.scheduled_ns),
            dispatched_ns: known(stamps.dispatched_ns),
            sent_ns: known(stamps.sent_ns),
            first_byte_ns: known(stamps.first_byte_ns),
            first_token_ns: known(facts.first_token_ns),
            last_token_ns: known(facts.last_token_ns),
            complete_ns: known(stamps.complete_ns),
            latency_ns: since(origin_ns, stamps.complete_ns),
            service_ns: since(stamps.sent_ns, stamps.complete_ns),
            ttft_ns: since(origin_ns, facts.first_token_ns),
            tpot_ns,
            lateness_ns: (stamps.scheduled_ns > 0 && stamps.dispatched_ns > 0)
                .then(|| stamps.dispatched_ns.saturating_sub(stamps.scheduled_ns)),
            status: (record.status > 0).then_some(record.status),
            failure: record.failure.map(|kind| kind.name()),
            finish_reason: (facts.finish != FinishReason::None).then(|| facts.finish.name()),
            isl: facts.usage.prompt,
            osl: facts.usage.completion,
            chunks: (*facts != AnswerFacts::default()).then_some(facts.chunks),
            bytes: record.body_bytes,
            texts: None,
        }
    }
}

fn known(instant_ns: u64) -> Option<u64> {
    (instant_ns > 0).then_some(instant_ns)
}

fn instants(first_ns: u64, gaps_ns: &[u64]) -> Vec<u64> {
    let mut at_ns = first_ns;
    let rest = gaps_ns.iter().map(|gap_ns| {
        at_ns += gap_ns;
        at_ns
    });
    known(first_ns).into_iter().chain(rest).collect()
}

/// What was asked: the member of a JSON body that holds it, else the body.
fn prompt_of(request: &[u8]) -> Value {
    let head_end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = head_end.map_or(&[][..], |at| &request[at + 4..]);
    if let Ok(Value::Object(mut members)) = serde_json::from_slice(body)
        && let Some(prompt) = PROMPT_MEMBERS.iter().find_map(|name| members.remove(*name))
    {
        return prompt;
    }
    Value::String(String::from_utf8_lossy(body).into_owned())
}

/// A value with the secrets in its texts masked.
fn masked_value(value: Value, mask: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(mask(&text)),
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| masked_value(item, mask)).collect())
        }
        Value::Object(members) => Value::Object(
            members.into_iter().map(|(name, value)| (name, masked_value(value, mask))).collect(),
        ),
        other => other,
    }
}

/// Where the bodies of inference requests have their prompt.
const PROMPT_MEMBERS: [&str; 5] = ["messages", "prompt", "input", "text", "input_ids"];
/// Between two looks at empty rings: a ring of the usual size then holds above a million records a
/// second.
const POLL: Duration = Duration::from_millis(5);
const OUT_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use loadgen_shards::answer::Usage;
    use loadgen_shards::failure::FailureKind;
    use loadgen_shards::recorder::Stamps;

    fn record() -> Record {
        Record {
            phase: 1,
            position: 7,
            request: 3,
            slot: Some(2),
            stamps: Stamps {
                scheduled_ns: 1_000,
                dispatched_ns: 1_010,
                ready_ns: 1_020,
                sent_ns: 1_100,
                first_byte_ns: 1_500,
                complete_ns: 3_000,
            },
            status: 200,
            failure: None,
            body_bytes: 42,
            facts: AnswerFacts {
                is_stream: true,
                first_token_ns: 1_600,
                last_token_ns: 2_600,
                chunks: 3,
                instants: 3,
                usage: Usage { prompt: Some(5), completion: Some(6), ..Usage::default() },
                finish: FinishReason::Stop,
                ..AnswerFacts::default()
            },
            is_uncounted: false,
            text: None,
        }
    }

    fn json(record: &Record) -> Value {
        serde_json::to_value(Line::of(record, 4)).expect("valid")
    }

    #[test]
    fn a_line_has_every_figure_by_its_definition() {
        let line = json(&record());
        let expected = [
            ("sample_index", 3),
            ("shard", 4),
            ("connection", 2),
            ("latency_ns", 2_000),
            ("service_ns", 1_900),
            ("ttft_ns", 600),
            ("tpot_ns", 200),
            ("lateness_ns", 10),
            ("status", 200),
            ("isl", 5),
            ("osl", 6),
            ("chunks", 3),
            ("bytes", 42),
        ];
        for (key, value) in expected {
            assert_eq!(line[key], value, "{key}");
        }
        assert_eq!((&line["failure"], &line["finish_reason"]), (&Value::Null, &"stop".into()));
    }

    #[test]
    fn a_failure_has_a_kind_and_no_latency() {
        let failed = Record {
            failure: Some(FailureKind::ConnectRefused),
            status: 0,
            slot: None,
            stamps: Stamps { dispatched_ns: 5, complete_ns: 9, ..Stamps::default() },
            facts: AnswerFacts::default(),
            ..record()
        };
        let line = json(&failed);
        assert_eq!(line["failure"], "connect_refused");
        let nulls = "connection scheduled_ns sent_ns latency_ns service_ns ttft_ns tpot_ns \
             lateness_ns status finish_reason isl osl chunks";
        for key in nulls.split(' ') {
            assert_eq!(line[key], Value::Null, "{key}");
        }
        assert_eq!(line["complete_ns"], 9);
    }

    #[test]
    fn the_prompt_is_what_was_asked_and_secrets_in_it_are_masked() {
        let request =
            b"POST / HTTP/1.1\r\n\r\n{\"model\":\"m\",\"messages\":[{\"content\":\"key-1\"}]}";
        let value = masked_value(prompt_of(request), &|text| text.replace("key-1", "***"));
        assert_eq!(value, serde_json::json!([{ "content": "***" }]));
        assert_eq!(prompt_of(b"POST / HTTP/1.1\r\n\r\nplain"), "plain");
        assert_eq!(prompt_of(b"GET / HTTP/1.1\r\n\r\n"), "");
    }

    #[test]
    fn instants_of_chunks_are_the_first_and_the_sums_of_the_gaps() {
        assert_eq!(instants(100, &[5, 0, 10]), [100, 105, 105, 115]);
        assert_eq!(instants(0, &[]), [0u64; 0]);
    }
}
