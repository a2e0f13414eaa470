//! The command line of inference runs, seen from a server that shares no code with the program:
//! which model is asked, what goes before the load, what bad input gets, and what `probe` finds.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::support::run::{Outcome, Run, parse};
use crate::support::server::refused_port;

/// A request as it came.
#[derive(Clone, Debug)]
struct Asked {
    path: String,
    head: String,
    body: Value,
}

/// Status, media type and body.
type Answer = (u16, &'static str, String);

/// A server with a function for its answers, and a thread for each connection.
struct ModelServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl ModelServer {
    fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let address = listener.local_addr().expect("a bound socket has an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&asked), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        ModelServer { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests to a path, so far.
    fn asked(&self, path: &str) -> Vec<Asked> {
        let asked = self.asked.lock().expect("no test panics with it");
        asked.iter().filter(|asked| asked.path == path).cloned().collect()
    }
}

fn serve(
    stream: TcpStream,
    seen: &Mutex<Vec<Asked>>,
    answer: &(dyn Fn(&Asked) -> Answer + Send + Sync),
) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        let path = head.split(' ').nth(1)?.to_owned();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let asked = Asked { path, head, body };
        let (status, kind, text) = answer(&asked);
        seen.lock().expect("no test panics with it").push(asked);
        let length = text.len();
        let reply = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{text}"
        );
        writer.write_all(reply.as_bytes()).ok()?;
    }
}

const JSON: &str = "application/json";
const SSE: &str = "text/event-stream";

fn models(names: &[&str]) -> Answer {
    let entries: Vec<Value> = names.iter().map(|name| json!({"id": name})).collect();
    (200, JSON, json!({"object": "list", "data": entries}).to_string())
}

/// A good answer of a chat, in the form that was asked for.
fn chat(asked: &Asked) -> Answer {
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7});
    if asked.body["stream"] != true {
        let message = json!({"role": "assistant", "content": "Hi there"});
        let choices = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
        return (200, JSON, json!({"choices": choices, "usage": usage}).to_string());
    }
    let delta = |delta: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        json!({"choices": [choice]})
    };
    let events = [
        delta(json!({"role": "assistant"}), Value::Null),
        delta(json!({"content": "Hi"}), Value::Null),
        delta(json!({"content": " there"}), json!("stop")),
        json!({"choices": [], "usage": usage}),
    ];
    let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    (200, SSE, text)
}

/// One model, and chats.
fn usual(asked: &Asked) -> Answer {
    match asked.path.as_str() {
        "/v1/models" => models(&["tiny"]),
        "/v1/chat/completions" => chat(asked),
        _ => (404, JSON, json!({"error": {"message": "no such path"}}).to_string()),
    }
}

const CHAT: &str = "/v1/chat/completions";

fn run(server: &ModelServer, words: &str) -> Outcome {
    Run::new().args(["max-throughput", &server.url("/v1"), "-c", "1"]).words(words).finish()
}

/// A dataset beside the run.
fn run_with(server: &ModelServer, name: &str, text: &str, words: &str) -> Outcome {
    let run = Run::new().args(["max-throughput", &server.url("/v1"), "-c", "1"]);
    let path = run.folder().join(name);
    std::fs::write(&path, text).expect("the folder is ours");
    run.args(["--dataset", path.to_str().expect("UTF-8")]).words(words).finish()
}

/// The text of the last message of each chat.
fn prompts(server: &ModelServer) -> Vec<String> {
    let text = |asked: &Asked| {
        let messages = asked.body["messages"].as_array().expect("a chat has messages");
        messages.last().expect("at least one")["content"].as_str().expect("a text").to_owned()
    };
    server.asked(CHAT).iter().map(text).collect()
}

#[test]
fn the_only_model_is_taken_and_the_first_request_is_counted_apart() {
    let server = ModelServer::start(usual);
    let outcome = run(&server, "-n 5 --isl 20 --osl 4 --tokenizer none");
    outcome.expect_successes(5);
    assert_eq!(server.asked("/v1/models").len(), 1);
    let chats = server.asked(CHAT);
    assert_eq!(chats.len(), 6, "one goes before the load; {}", outcome.story());
    let distinct: BTreeSet<String> = prompts(&server).into_iter().collect();
    assert_eq!(distinct.len(), 6, "no prompt is sent again, which would measure a cache");
    for asked in &chats {
        assert_eq!(asked.body["model"], "tiny");
        assert_eq!(asked.body["stream"], true);
        assert_eq!(asked.body["stream_options"]["include_usage"], true);
        assert_eq!(asked.body["max_completion_tokens"], 4);
    }
    assert!(outcome.stderr.contains("model tiny"), "{}", outcome.story());
    assert!(outcome.stderr.contains("preflight: answered in"), "{}", outcome.story());
    let summary = outcome.summary();
    assert_eq!(summary["output_sequence_lengths"]["total"], 10, "{}", outcome.story());
}

#[test]
fn several_models_are_listed_and_none_is_chosen() {
    let server = ModelServer::start(|_| models(&["big", "small"]));
    let outcome = run(&server, "-n 5");
    outcome.expect_code(2).expect_reason(&["--model", "2 models", "big, small"]);
    assert!(server.asked(CHAT).is_empty());
}

#[test]
fn a_server_without_a_list_of_models_needs_one_named() {
    let server = ModelServer::start(|asked| match asked.path.as_str() {
        CHAT => chat(asked),
        _ => (404, JSON, "{\"detail\":\"Not Found\"}".to_owned()),
    });
    run(&server, "-n 2").expect_code(3).expect_reason(&["status 404", "not found", "--model"]);
    run(&server, "-n 2 --model tiny").expect_successes(2);
}

#[test]
fn what_a_server_refuses_is_shown_before_the_load() {
    let server = ModelServer::start(|asked| match asked.body["model"].as_str() {
        Some("tiny") => chat(asked),
        _ => {
            let message = "The model `nope` does not exist.";
            (404, JSON, json!({"error": {"message": message, "code": 404}}).to_string())
        }
    });
    let outcome = run(&server, "-n 5 --model nope --tokenizer none");
    outcome.expect_code(3).expect_reason(&["404", "`nope` does not exist", "--model"]);
    assert_eq!(server.asked(CHAT).len(), 1, "only the first request; {}", outcome.story());
    let outcome = run(&server, "-n 5 --model nope --no-preflight");
    outcome.expect_code(1);
    assert_eq!(server.asked(CHAT).len(), 1 + 5, "{}", outcome.story());
    assert_eq!(outcome.counter("tracked_samples_failed"), 5);
}

#[test]
fn a_failure_inside_a_good_status_is_seen_before_the_load() {
    let server = ModelServer::start(|asked| match asked.path.as_str() {
        CHAT => (200, SSE, "data: {\"error\":{\"message\":\"out of memory\"}}\n\n".to_owned()),
        _ => usual(asked),
    });
    run(&server, "-n 5").expect_code(3).expect_reason(&["status 200", "out of memory"]);
}

#[test]
fn nobody_there_is_said_at_once() {
    let url = format!("http://127.0.0.1:{}/v1", refused_port());
    let outcome = Run::new().args([&url, "-n", "5"]).finish();
    outcome.expect_code(3).expect_reason(&["no connection", "refused"]);
    let outcome = Run::new().args([&url, "-n", "5", "--model", "m"]).finish();
    outcome.expect_code(3).expect_reason(&["no connection", "--no-preflight"]);
}

#[test]
fn the_key_goes_with_every_request_and_is_never_shown() {
    let server = ModelServer::start(|asked| {
        let key = "Bearer sk-geheim-12345678";
        match asked.head.contains(&format!("Authorization: {key}\r\n")) {
            true if asked.body["model"] == "echo" => {
                (401, JSON, json!({"error": {"message": format!("no {key} here")}}).to_string())
            }
            true => usual(asked),
            false => (401, JSON, json!({"error": {"message": "no key"}}).to_string()),
        }
    });
    let with_key = |words: &str| {
        let run = Run::new().args([&server.url("/v1"), "-c", "1", "-n", "2"]).words(words);
        let path = run.folder().join("key");
        std::fs::write(&path, "sk-geheim-12345678\n").expect("the folder is ours");
        run.args(["--api-key".to_owned(), format!("@{}", path.display())]).finish()
    };
    let outcome = with_key("");
    outcome.expect_successes(2);
    let echoed = with_key("--model echo");
    echoed.expect_code(3).expect_reason(&["<redacted>"]);
    for outcome in [&outcome, &echoed] {
        assert!(!outcome.story().contains("sk-geheim"), "{}", outcome.story());
    }
    assert!(!outcome.file("config.yaml").contains("sk-geheim"));
    run(&server, "-n 2").expect_code(3).expect_reason(&["no key"]);
}

#[test]
fn a_dataset_is_sent_once() {
    let server = ModelServer::start(usual);
    let rows = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n\n{\"text\":\"three\"}\n";
    let outcome = run_with(&server, "q.jsonl", rows, "--no-preflight");
    outcome.expect_successes(3);
    let mut sent = prompts(&server);
    sent.sort();
    assert_eq!(sent, ["one", "three", "two"]);
}

#[test]
fn bad_rows_are_named_or_left_out() {
    let server = ModelServer::start(usual);
    let rows = "{\"prompt\":\"one\"}\nnonsense\n{\"prompt\":\"three\"}\n";
    let outcome = run_with(&server, "q.jsonl", rows, "");
    outcome.expect_code(2).expect_reason(&["q.jsonl", "line 2", "--skip-bad-rows"]);
    assert!(server.asked(CHAT).is_empty(), "nothing is sent; {}", outcome.story());
    let outcome = run_with(&server, "q.jsonl", rows, "--skip-bad-rows");
    outcome.expect_successes(2);
    assert!(outcome.stderr.contains("1 bad row"), "{}", outcome.story());
}

#[test]
fn what_is_wrong_with_a_dataset_is_said_before_anything_is_sent() {
    let server = ModelServer::start(usual);
    for (name, text, words, says) in [
        ("q.jsonl", "", "", vec!["q.jsonl"]),
        ("q.jsonl", "{\"ask\":\"one\"}\n", "", vec!["no prompt", "ask", "--column prompt="]),
        ("q.csv", "a,b\n1,2\n", "--column prompt=c", vec!["has no `c`", "a, b"]),
        ("q.csv", "a,b\n1,2\n", "--api template -b {{c}}", vec!["row 1", "c"]),
        ("q.jsonl", "{\"prompt\":\"x\"}\n", "--tokenizer /nonexistent/tok", vec!["/nonexistent"]),
    ] {
        let outcome = run_with(&server, name, text, words);
        assert!(matches!(outcome.code(), Some(2 | 3)), "{}", outcome.story());
        outcome.expect_reason(&says);
        assert!(server.asked(CHAT).is_empty(), "{}", outcome.story());
    }
    let outcome = run(&server, "--dataset /nonexistent/q.jsonl");
    outcome.expect_code(2).expect_reason(&["/nonexistent/q.jsonl"]);
}

#[test]
fn templates_take_columns_in_path_and_body() {
    let server = ModelServer::start(|_| (200, JSON, "{\"out\":{\"text\":\"Hi\"}}".to_owned()));
    let run = Run::new().args([&server.url("/items/{{id}}"), "-c", "1", "-n", "2"]);
    let path = run.folder().join("q.csv");
    std::fs::write(&path, "id,q\n7,say \"\"\n8,\"a, b\"\n").expect("the folder is ours");
    let outcome = run
        .args(["--dataset", path.to_str().expect("UTF-8"), "-b", "{\"ask\":\"{{q}}\"}"])
        .words("--response-field out.text --no-preflight")
        .finish();
    outcome.expect_successes(2);
    assert_eq!(server.asked("/items/7")[0].body, json!({"ask": "say \"\""}));
    assert_eq!(server.asked("/items/8")[0].body, json!({"ask": "a, b"}));
}

#[test]
fn columns_go_into_headers_of_messages_that_are_made() {
    let server = ModelServer::start(usual);
    let rows = "id,question\n7,one\n";
    let outcome = run_with(&server, "q.csv", rows, "--api openai -H X-Id:{{id}} --no-preflight");
    outcome.expect_successes(1);
    assert!(server.asked(CHAT)[0].head.contains("X-Id: 7\r\n"), "{}", outcome.story());
    let models = &server.asked("/v1/models")[0];
    assert!(!models.head.contains("X-Id"), "no row, no column: {}", models.head);
    assert!(outcome.file("config.yaml").contains("method: POST"), "{}", outcome.story());
}

#[test]
fn targets_are_sent_as_they_stand() {
    let server = ModelServer::start(|_| (200, JSON, "{}".to_owned()));
    let run = Run::new().args(["max-throughput", "-c", "1", "-n", "2", "-H", "X-Both: yes"]);
    let (get, post) = (server.url("/a"), server.url("/b"));
    let list = format!("GET {get}\nX-Own: 1\n\nPOST {post}\n@body.json\n");
    for (name, text) in [("list", list.as_str()), ("body.json", "{\"x\":1}")] {
        std::fs::write(run.folder().join(name), text).expect("the folder is ours");
    }
    let path = run.folder().join("list");
    let outcome = run.args(["--targets", path.to_str().expect("UTF-8")]).finish();
    outcome.expect_successes(2);
    let (a, b) = (server.asked("/a"), server.asked("/b"));
    assert!(a[0].head.starts_with("GET ") && a[0].head.contains("X-Own: 1\r\n"), "{a:?}");
    assert!(b[0].head.starts_with("POST ") && b[0].head.contains("X-Both: yes\r\n"), "{b:?}");
    assert_eq!(b[0].body, json!({"x": 1}));
}

#[test]
fn a_body_of_the_users_is_sent_as_it_is() {
    let server = ModelServer::start(usual);
    let body = "{\"model\": \"x\",  \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    let url = server.url(CHAT);
    let outcome = Run::new().args([&url, "-b", body, "-n", "2", "-c", "1"]).finish();
    outcome.expect_successes(2);
    assert!(server.asked("/v1/models").is_empty(), "the body names its model");
    assert_eq!(server.asked(CHAT)[0].body, parse(body));
    let run = Run::new().args([&url, "-n", "2", "-c", "1"]);
    let path = run.folder().join("body.json");
    std::fs::write(&path, "{\"stream\": true}").expect("the folder is ours");
    let outcome = run.args(["--body-file", path.to_str().expect("UTF-8")]).finish();
    outcome.expect_successes(2);
    assert!(outcome.stdout.contains("· streamed"), "{}", outcome.story());
}

#[test]
fn made_up_prompts_are_new_in_each_run_and_phase_unless_the_seed_is_given() {
    let sent = |words: &str| {
        let server = ModelServer::start(usual);
        let outcome = run(
            &server,
            &format!("-n 3 --warmup 3 --isl 16 --no-preflight --order sequential {words}"),
        );
        outcome.expect_code(0);
        (prompts(&server), outcome)
    };
    let ((first, outcome), (second, _)) = (sent(""), sent(""));
    let all: BTreeSet<&String> = first.iter().chain(&second).collect();
    assert_eq!(all.len(), 12, "each prompt is another one: {first:?} {second:?}");
    let said = outcome.stdout.clone() + &outcome.stderr;
    assert!(said.contains("seed"), "the seed is printed; {}", outcome.story());
    let ((first, _), (second, _)) = (sent("--prompt-seed 7"), sent("--prompt-seed 7"));
    assert_eq!(first, second);
    assert_eq!(first[..3], first[3..], "in each phase");
}

/// A token for each two letters of a word: a server whose tokenizer nobody has.
fn pairs_of_letters(text: &str) -> u64 {
    text.split(' ').map(|word| word.len().div_ceil(2) as u64).sum()
}

#[test]
fn the_length_of_prompts_is_calibrated_by_what_the_server_counts() {
    let asked_text =
        |asked: &Asked| asked.body["messages"][0]["content"].as_str().map(str::to_owned);
    // By /tokenize, and where there is none by the usage of an answer.
    for has_tokenize in [true, false] {
        let server = ModelServer::start(move |asked| match asked.path.as_str() {
            "/tokenize" if has_tokenize => {
                let text = asked.body["prompt"].as_str().expect("a prompt");
                let tokens: Vec<u64> = (0..pairs_of_letters(text)).collect();
                (200, JSON, json!({"tokens": tokens}).to_string())
            }
            CHAT if asked.body["stream"] != true => {
                let count = pairs_of_letters(&asked_text(asked).expect("a text"));
                let usage = json!({"prompt_tokens": count, "completion_tokens": 1});
                let message = json!({"role": "assistant", "content": "Hi"});
                let choice = json!({"message": message, "finish_reason": "length"});
                (200, JSON, json!({"choices": [choice], "usage": usage}).to_string())
            }
            _ => usual(asked),
        });
        let outcome = run(&server, "-n 20 --isl 300 --osl 4");
        outcome.expect_successes(20);
        let chats = server.asked(CHAT);
        let streamed = chats.iter().filter(|asked| asked.body["stream"] == true);
        let counts: Vec<u64> =
            streamed.map(|asked| pairs_of_letters(&asked_text(asked).expect("a text"))).collect();
        assert_eq!(counts.len(), 21, "{}", outcome.story());
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        assert!((270.0..330.0).contains(&mean), "{mean}; {}", outcome.story());
        let by = if has_tokenize { "/tokenize" } else { "usage" };
        assert!(outcome.stdout.contains(&format!("server's {by}")), "{}", outcome.story());
    }
}

#[test]
fn without_a_url_the_embedded_endpoint_is_of_the_kind_that_is_asked() {
    for api in ["openai", "openai-completions", "openai-embeddings", "sglang"] {
        let words = format!("max-throughput -c 1 -n 3 --isl 20 --api {api}");
        Run::new().words(&words).finish().expect_successes(3);
    }
}

#[test]
fn without_a_url_the_embedded_endpoint_answers_prompts() {
    let outcome = Run::new().words("max-throughput -c 2 -n 50 --isl 20 --osl 8").finish();
    outcome.expect_successes(50);
    let total = &outcome.summary()["output_sequence_lengths"]["total"];
    assert_eq!(*total, 400, "{}", outcome.story());
}

/// "Hi there" is two tokens in cl100k.
#[test]
fn answers_that_the_server_does_not_count_are_counted_after_the_run() {
    let server = ModelServer::start(|asked| {
        let (status, media_type, text) = usual(asked);
        let events = text.split_inclusive("\n\n").filter(|event| !event.contains("usage"));
        (status, media_type, events.collect())
    });
    let words = "-n 20 --isl 6 --tokenizer cl100k --goodput tpot:10s";
    for records in ["", "--records", "--records-full"] {
        let outcome = run(&server, &format!("--no-include-usage {records} {words}"));
        outcome.expect_successes(20);
        let summary = outcome.summary();
        assert_eq!(summary["output_sequence_lengths"]["total"], 40, "{}", outcome.story());
        assert_eq!(summary["input_sequence_lengths"]["total"], 120);
        assert_eq!(summary["n_goodput_unknown"], 0);
    }
    // Negative control: nobody counts.
    let outcome = run(&server, "-n 20 --isl 6 --tokenizer none --no-include-usage");
    let lengths = &outcome.summary()["output_sequence_lengths"];
    assert!(lengths["total"] != 40, "{}", outcome.story());
}

#[test]
fn each_request_has_a_line_with_its_texts() {
    let server = ModelServer::start(usual);
    let outcome = run(&server, "-n 20 --isl 6 --osl 2 --tokenizer cl100k --records-full");
    outcome.expect_successes(20);
    let text = outcome.file("requests.jsonl");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 20);
    let ids: BTreeSet<&str> =
        lines.iter().map(|line| line["query_id"].as_str().expect("a text")).collect();
    assert_eq!(ids.len(), 20);
    let asked = server.asked(CHAT);
    for line in &lines {
        assert_eq!((&line["status"], &line["output"]), (&json!(200), &json!("Hi there")));
        assert_eq!((&line["osl"], &line["finish_reason"]), (&json!(2), &json!("stop")));
        assert!(asked.iter().any(|asked| asked.body["messages"] == line["prompt"]), "{line}");
        let latency_ns = line["complete_ns"].as_u64().unwrap() - line["sent_ns"].as_u64().unwrap();
        assert_eq!(line["latency_ns"], latency_ns);
    }
    let mut latencies_ns: Vec<u64> =
        lines.iter().map(|line| line["latency_ns"].as_u64().expect("a success")).collect();
    latencies_ns.sort_unstable();
    let latency = &outcome.summary()["latency"];
    assert_eq!(
        (&latency["min"], &latency["max"]),
        (&json!(latencies_ns[0]), &json!(latencies_ns[19]))
    );
    assert_eq!(latency["total"], latencies_ns.iter().sum::<u64>());
}

#[test]
fn probe_tells_what_answers() {
    let server = ModelServer::start(|asked| match asked.path.as_str() {
        "/v1/models" => {
            let entry = json!({"id": "tiny", "owned_by": "vllm", "max_model_len": 2048});
            (200, JSON, json!({"data": [entry]}).to_string())
        }
        "/version" => (200, JSON, "{\"version\":\"0.32.0\"}".to_owned()),
        "/tokenize" => (200, JSON, "{\"count\":2,\"tokens\":[1,2]}".to_owned()),
        _ => usual(asked),
    });
    let probe = |words: &str| {
        Run::new().default_report_dir().args(["probe", &server.url("")]).words(words).finish()
    };
    let outcome = probe("");
    outcome.expect_code(0);
    for word in
        ["vLLM 0.32.0", "tiny", "2 048 tokens", "/tokenize", "5 tokens in and 2 out", "2 chunks"]
    {
        assert!(outcome.stdout.contains(word), "{word}; {}", outcome.story());
    }
    // The URL alone would be loaded as plain HTTP.
    let next = format!("concurrency {}/ -c 8 -n 100 --api openai\n", server.url(""));
    assert!(outcome.stdout.contains(&next), "{}", outcome.story());
    probe("--api raw").expect_code(2).expect_reason(&["--api", "a kind of inference endpoint"]);
    let told = parse(&probe("--json").stdout);
    for (pointer, expected) in [
        ("/ok", json!(true)),
        ("/server", json!("vLLM 0.32.0")),
        ("/models", json!(["tiny"])),
        ("/context_tokens", json!(2048)),
        ("/tokenize", json!(true)),
        ("/stream/streamed", json!(true)),
        ("/stream/output_tokens", json!(2)),
        ("/stream/chunks", json!(2)),
        // The whole answer comes in one piece.
        ("/stream/coalesced", json!(1)),
        ("/whole/streamed", json!(false)),
        ("/tls", Value::Null),
    ] {
        assert_eq!(told.pointer(pointer), Some(&expected), "{pointer}: {told}");
    }
}

#[test]
fn probe_says_what_is_not_as_expected() {
    let server = ModelServer::start(|asked| match asked.path.as_str() {
        // No streams.
        CHAT => chat(&Asked { body: Value::Null, ..asked.clone() }),
        _ => usual(asked),
    });
    let probe = |url: &str| Run::new().default_report_dir().args(["probe", url]).finish();
    let outcome = probe(&server.url("/v1"));
    outcome.expect_code(1).expect_reason(&["a stream was asked for", JSON]);
    assert!(outcome.stdout.contains("does not answer openai as expected"), "{}", outcome.story());
    let nobody = probe(&format!("http://127.0.0.1:{}", refused_port()));
    nobody.expect_code(3).expect_reason(&["no connection"]);
}
