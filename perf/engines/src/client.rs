//! What all engines share: the job, the state of one connection, the tally.
//!
//! An engine moves bytes; everything else it asks here. After each receive it hands the bytes to
//! [`Exchange::received`], which says what to do next.

use crate::http::Decoder;
use hdrhistogram::Histogram;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

/// The body of a request for a stream of tokens.
const CHAT: &str = concat!(
    r#"{"model":"mock","messages":[{"role":"user","content":"hello"}],"stream":true,"#,
    r#""stream_options":{"include_usage":true},"max_completion_tokens":64}"#
);

pub struct Job {
    pub connections: usize,
    pub seconds: u32,
    pub port: u16,
    /// Asks for a stream of tokens, as clients of inference servers do, and not for `/`.
    pub is_chat: bool,
}

impl Job {
    pub fn request(&self) -> Vec<u8> {
        let host = format!("HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", self.port);
        if self.is_chat {
            let length = CHAT.len();
            format!(
                "POST /v1/chat/completions {host}Content-Type: application/json\r\n\
                 Content-Length: {length}\r\n\r\n{CHAT}"
            )
        } else {
            format!("GET / {host}\r\n")
        }
        .into_bytes()
    }

    pub fn endpoint(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// All connections, open, before the clock of the run starts.
    pub fn connect(&self) -> io::Result<Vec<TcpStream>> {
        (0..self.connections)
            .map(|_| {
                let stream = TcpStream::connect(self.endpoint())?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(stream)
            })
            .collect()
    }
}

/// What an engine does next with a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The response goes on: receive.
    Read,
    /// The response is complete: send the next request, then receive.
    Send,
    /// The run is over or the connection is broken: leave it.
    Stop,
}

/// One connection: the response being read, and when its request was sent.
pub struct Exchange {
    decoder: Decoder,
    sent_ns: u64,
}

impl Exchange {
    pub fn new(tally: &Tally) -> Self {
        Self { decoder: Decoder::default(), sent_ns: tally.now_ns() }
    }

    /// Takes the bytes of one receive; none means that the server closed. Reads the clock once: a
    /// next request is taken as sent when the response before it was complete.
    pub fn received(&mut self, bytes: &[u8], tally: &mut Tally) -> Step {
        if bytes.is_empty() {
            return tally.fault("closed by the server");
        }
        let chunks_before = self.decoder.chunk_count;
        let is_complete = match self.decoder.feed(bytes) {
            Ok(is_complete) => is_complete,
            Err(what) => return tally.fault(what),
        };
        let now_ns = tally.now_ns();
        tally.chunk_count += self.decoder.chunk_count - chunks_before;
        if is_complete {
            tally.record(now_ns - self.sent_ns);
            self.sent_ns = now_ns;
        }
        match (now_ns >= tally.end_ns, is_complete) {
            (true, _) => Step::Stop,
            (false, true) => Step::Send,
            (false, false) => Step::Read,
        }
    }
}

/// The result of a run. Times are ns since the run began.
pub struct Tally {
    start: Instant,
    end_ns: u64,
    latency_ns: Histogram<u64>,
    request_count: u64,
    chunk_count: u64,
    error_count: u64,
}

impl Tally {
    pub fn new(job: &Job) -> Self {
        Self {
            start: Instant::now(),
            end_ns: u64::from(job.seconds) * 1_000_000_000,
            latency_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .expect("the bounds are constants that the crate accepts"),
            request_count: 0,
            chunk_count: 0,
            error_count: 0,
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a run is shorter than 584 years")
    }

    fn record(&mut self, latency_ns: u64) {
        self.request_count += 1;
        self.latency_ns.saturating_record(latency_ns);
    }

    /// Counts a fault; the first one is told on stderr.
    pub fn fault(&mut self, what: &str) -> Step {
        if self.error_count == 0 {
            eprintln!("engines: first fault: {what}");
        }
        self.error_count += 1;
        Step::Stop
    }

    pub fn json(&self, engine: &str) -> String {
        let micros = |quantile| self.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        format!(
            "{{\"engine\":\"{engine}\",\"requests\":{},\"chunks\":{},\"errors\":{},\
             \"p50_us\":{:.2},\"p99_us\":{:.2}}}",
            self.request_count,
            self.chunk_count,
            self.error_count,
            micros(0.5),
            micros(0.99),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn both_requests_end_where_they_say() {
        let job = Job { connections: 1, seconds: 1, port: 8000, is_chat: false };
        let plain = String::from_utf8(job.request()).unwrap();
        assert_eq!(plain, "GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n");
        let chat = String::from_utf8(Job { is_chat: true, ..job }.request()).unwrap();
        let (head, body) = chat.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n"));
        assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{head}");
        assert!(body.contains(r#""stream":true"#));
    }

    #[test]
    fn an_exchange_sends_after_a_whole_response_and_stops_at_a_fault_or_the_end() {
        let mut tally = Tally::new(&Job { connections: 1, seconds: 3600, port: 1, is_chat: false });
        let mut exchange = Exchange::new(&tally);
        assert_eq!(exchange.received(&RESPONSE[..10], &mut tally), Step::Read);
        assert_eq!(exchange.received(&RESPONSE[10..], &mut tally), Step::Send);
        assert_eq!((tally.request_count, tally.error_count), (1, 0));
        assert_eq!(exchange.received(b"", &mut tally), Step::Stop, "closed");
        assert_eq!(exchange.received(b"nonsense\r\n\r\n", &mut tally), Step::Stop);
        assert_eq!((tally.request_count, tally.error_count), (1, 2));

        let mut over = Tally { end_ns: 0, ..tally };
        assert_eq!(Exchange::new(&over).received(RESPONSE, &mut over), Step::Stop);
        assert_eq!((over.request_count, over.error_count), (2, 2), "the last one counts");
    }
}
