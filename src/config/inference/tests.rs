//! When a run is one of inference, and what its flags mean.

use std::ffi::OsString;

use serde_json::json;

use super::*;
use crate::cli::{self, Parsed};
use crate::config::Config;
use crate::dataset::{Format, Length};

fn config(line: &str) -> Result<Config, Error> {
    match cli::parse(line.split_whitespace().map(OsString::from))? {
        Parsed::Load(load) => Config::from_cli(*load),
        other => panic!("{line}: {other:?}"),
    }
}

fn run(line: &str) -> Inference {
    let config = config(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    config.inference.unwrap_or_else(|| panic!("{line}: no inference run"))
}

#[test]
fn a_flag_a_goal_or_the_path_makes_an_inference_run() {
    for (line, api) in [
        ("http://h/v1", Api::Chat),
        ("http://h/proxy/v1/", Api::Chat),
        ("http://h/v1/chat/completions", Api::Chat),
        ("http://h/v1/completions", Api::Completions),
        ("http://h/v1/embeddings", Api::Embeddings),
        ("http://h/generate", Api::Generate),
        ("http://h/ --model tiny", Api::Chat),
        ("http://h/ --api sglang", Api::Generate),
        ("http://h/ --api openai_completions", Api::Completions),
        ("http://h/ --isl 5", Api::Chat),
        ("http://h/ --osl 5", Api::Chat),
        ("http://h/ --stream", Api::Chat),
        ("http://h/ --no-stream", Api::Chat),
        ("http://h/ --dataset q.jsonl", Api::Chat),
        ("http://h/{{id}} --dataset q.csv", Api::Template),
        ("http://h/ --dataset q.csv -b {{id}}", Api::Template),
        ("http://h/ --dataset bodies --api raw", Api::Raw),
        ("http://h/ --slo ttft.p99:5ms", Api::Chat),
        ("http://h/ --goodput tpot:5ms", Api::Chat),
        ("http://h/ --abort-if tps<5", Api::Chat),
        ("--model tiny", Api::Chat),
    ] {
        assert_eq!(run(line).api, api, "{line}");
    }
    for line in [
        "http://h/",
        "http://h/v1/models",
        "http://h/v1 -m GET",
        "http://h/ --api raw",
        "http://h/v1 --api raw",
        "http://h/v2",
        "http://h/ --slo p99:5ms",
        "http://h/ --records-full",
        "--targets list",
    ] {
        assert!(config(line).expect("valid").inference.is_none(), "{line}");
    }
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let config = config("http://h/v1").expect("valid");
    assert_eq!(config.drain_timeout_ns, 240_000_000_000);
    assert_eq!(config.duration_ns, Some(10_000_000_000), "a time, as the prompts never end");
    let run = config.inference.expect("one");
    assert!(run.has_preflight && !run.is_lenient);
    assert!(run.sampling.stream && run.sampling.include_usage);
    assert_eq!(run.defaults, ["api", "model", "is_streamed", "dataset", "tokenizer"]);
    let Prompts::Synthetic(synthetic) = run.prompts else { panic!("{:?}", run.prompts) };
    assert_eq!((synthetic.isl, synthetic.osl), (Length::Fixed(550), Some(Length::Fixed(128))));
    assert_eq!((synthetic.seed, synthetic.count), (None, None));
    let typed = self::run("http://h/v1 --api openai --model m --stream --isl 9 --tokenizer none");
    assert!(typed.defaults.is_empty(), "{:?}", typed.defaults);
    let embeddings = self::run("http://h/v1/embeddings");
    assert!(!embeddings.sampling.stream, "nothing is generated");
    assert_eq!(self::run("http://h/ --dataset q --osl 9").sampling.max_tokens, Some(9));
    let limited = self::run("http://h/v1 --max-output-tokens 9");
    assert_eq!(limited.sampling.max_tokens, Some(9));
    let Prompts::Synthetic(synthetic) = limited.prompts else { panic!("synthetic") };
    assert_eq!(synthetic.osl, None, "there is a limit");
}

#[test]
fn a_dataset_ends_the_run_unless_something_else_does() {
    let stop = |line| config(line).map(|config| (config.requests, config.duration_ns));
    assert_eq!(stop("http://h/ --dataset q.jsonl"), Ok((None, None)));
    assert_eq!(stop("http://h/ --dataset q.jsonl -n 5"), Ok((Some(5), None)));
    assert_eq!(stop("http://h/ --dataset q.jsonl -d 5s"), Ok((None, Some(5_000_000_000))));
}

#[test]
fn a_dataset_is_a_path_with_options_behind_it() {
    let read = |line: &str| match run(line).prompts {
        Prompts::Dataset { path, options } => (path, options),
        other => panic!("{line}: {other:?}"),
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    for (text, path) in [
        ("q.jsonl", "q.jsonl"),
        ("perf:q.jsonl", "q.jsonl"),
        ("a,b/c.jsonl", "a,b/c.jsonl"),
        ("a=b,c.jsonl", "a=b,c.jsonl"),
        ("x=1,y=2/q.jsonl", "x=1,y=2/q.jsonl"),
    ] {
        let (got, options) = read(&format!("http://h/ --dataset {text}"));
        assert_eq!(got, PathBuf::from(path), "{text}");
        assert!(options.columns.is_empty() && options.limit.is_none(), "{text}: {options:?}");
    }
    let (path, options) = read(
        "http://h/ --dataset a,b.csv,format=csv,prompt=question,parser.system=sys,limit=5 --column \
         output_tokens=max --skip-bad-rows",
    );
    assert_eq!(path, PathBuf::from("a,b.csv"));
    assert_eq!((options.format, options.limit), (Some(Format::Csv), Some(5)));
    assert!(options.skips_bad_rows && !options.keeps_columns && !options.needs_no_prompt);
    let columns = [pair("prompt", "question"), pair("system", "sys"), pair("output_tokens", "max")];
    assert_eq!(options.columns, columns);
    let keeps = |line| {
        let options = read(line).1;
        (options.keeps_columns, options.needs_no_prompt)
    };
    assert_eq!(keeps("http://h/{{id}} --dataset q.csv"), (true, true));
    assert_eq!(keeps("http://h/ --api openai --dataset q.csv -H X-Id:{{id}}"), (true, false));
    assert_eq!(keeps("http://h/{{id}} --api raw --dataset q.csv"), (true, false));
}

#[test]
fn sampling_is_what_was_typed() {
    let sampling = run(
        "http://h/v1 --model m --max-tokens 64 --min-tokens 8 --ignore-eos --legacy-max-tokens \
         --temperature 0 --top-p 0.9 --top-k -1 --stop a --stop b --system be --no-include-usage \
         --no-stream --extra-body {\"seed\":1}",
    )
    .sampling;
    assert_eq!(
        sampling,
        Sampling {
            model: Some("m".to_owned()),
            max_tokens: Some(64),
            min_tokens: Some(8),
            ignore_eos: true,
            temperature: Some(0.0),
            top_p: Some(0.9),
            top_k: Some(-1),
            seed: None,
            stop: vec!["a".to_owned(), "b".to_owned()],
            stream: false,
            include_usage: false,
            legacy_max_tokens: true,
            system: Some("be".to_owned()),
            extra: json!({"seed": 1}).as_object().expect("an object").clone(),
        }
    );
    assert!(run("http://h/v1 --no-stream --stream").sampling.stream, "the last wins");
    assert!(!run("http://h/v1 --stream --no-stream").sampling.stream, "the last wins");
}

#[test]
fn every_wrong_value_is_named_with_what_is_allowed() {
    for (flags, flag, says) in [
        ("--api grpc", "--api", "sglang"),
        ("--isl 0", "--isl", "550~50"),
        ("--isl 1,2", "--isl", "sweep"),
        ("--osl 1..5", "--osl", "sweep"),
        ("--prompts 0", "--prompts", "from 1"),
        ("--prompt-seed x", "--prompt-seed", "whole number"),
        ("--max-output-tokens 0", "--max-output-tokens", "at least 1"),
        ("--min-tokens 9 --max-output-tokens 8", "--min-tokens", "above"),
        ("--temperature 3", "--temperature", "from 0 to 2"),
        ("--temperature warm", "--temperature", "from 0 to 2"),
        ("--top-p 0", "--top-p", "above 0"),
        ("--top-k 0", "--top-k", "-1 for all"),
        ("--extra-body {", "--extra-body", "no JSON"),
        ("--extra-body 5", "--extra-body", "JSON object"),
        ("--column prompt=x", "--column", "--dataset"),
        ("--skip-bad-rows", "--skip-bad-rows", "--dataset"),
        ("--dataset q,limit=0", "limit=", "at least 1"),
        ("--dataset acc:q", "--dataset", "accuracy"),
        ("--dataset q --column prompt", "--column", "ROLE=COLUMN"),
        ("--dataset q --prompt-seed 5", "--prompt-seed", "synthetic"),
        ("--dataset q -b x", "--dataset", "template"),
        ("--dataset q --osl 5~2", "--osl", "one number"),
        ("-b {} --osl 5", "--osl", "beside a body"),
        ("--api template", "--api template", "--dataset"),
        ("--api template --dataset q", "--api template", "{{column}}"),
        ("--api template --dataset q -b x", "--api template", "{{column}}"),
        ("--api template --dataset q -b {{a}} --temperature 1", "--temperature", "no meaning"),
        ("--api raw --dataset q --max-output-tokens 5", "--max-output-tokens", "no meaning"),
        ("--api openai-embeddings --osl 5", "--osl", "generates nothing"),
        ("-b {} --extra-body {}", "--extra-body", "as it is"),
        ("--osl 5 --max-output-tokens 5", "--osl", "exclude"),
        ("--api openai-embeddings --goodput ttft:5ms", "ttft:5ms", "streamed"),
        ("--no-stream --goodput tpot:5ms", "tpot:5ms", "streamed"),
        ("--api raw --model m", "--model", "--api raw"),
        ("--api openai-embeddings --stream", "--stream", "exclude"),
        ("-b {} --isl 5", "--isl", "synthetic"),
        ("--response-field .a", "--response-field", "position 1"),
        ("--api-key sk-geheim", "--api-key", "@FILE"),
        ("--api-key @", "--api-key", "@FILE"),
    ] {
        let line = format!("http://h/ {flags}");
        let error = config(&line).expect_err(&line);
        assert_eq!(error.exit_code(), 2, "{line}");
        let text = error.to_string();
        assert!(text.contains(flag) && text.contains(says), "{line}: {text}");
        assert!(!text.contains('\n') && !text.contains("geheim"), "{line}: {text}");
    }
}

#[test]
fn a_template_takes_made_up_prompts_too() {
    let run = run("http://h/ --api template -b {{prompt}} --isl 9 -n 5");
    let Prompts::Synthetic(synthetic) = run.prompts else { panic!("{:?}", run.prompts) };
    assert_eq!((run.api, synthetic.isl, synthetic.osl), (Api::Template, Length::Fixed(9), None));
    assert!(self::run("http://h/v1/embeddings --extra-body {\"dimensions\":3}").never_streams());
    assert!(!self::run("http://h/v1 --no-stream --extra-body {\"stream\":true}").never_streams());
}

#[test]
fn tls_flags_go_to_the_connection() {
    let tls = config("https://h/ --cacert a.pem --cert b.pem --key c.pem --sni n").expect("valid");
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(
        tls.tls,
        TlsOptions {
            cacert: path("a.pem"),
            cert: path("b.pem"),
            key: path("c.pem"),
            sni: Some("n".to_owned()),
            is_insecure: false,
        }
    );
    assert!(config("https://h/ -k").expect("valid").tls.is_insecure);
}

#[test]
fn prompts_differ_by_invocation_point_and_phase_unless_the_user_says_so() {
    let synthetic = |line: &str| match run(line).prompts {
        Prompts::Synthetic(synthetic) => synthetic,
        other => panic!("{line}: {other:?}"),
    };
    let drawn = synthetic("http://h/v1");
    let seed =
        |drawn_seed, point, part| Synthetic { drawn_seed, point, ..drawn.clone() }.seed_of(part);
    let mut seeds = Vec::new();
    for drawn in [1, 2] {
        for point in [0, 1] {
            seeds.push(seed(drawn, point, Part::Preflight));
            seeds.push(seed(drawn, point, Part::Warmup));
            seeds.push(seed(drawn, point, Part::Performance));
        }
    }
    let count = seeds.len();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), count, "{seeds:?}");
    assert!(seeds.iter().all(|seed| *seed < 1 << 53));
    let given = synthetic("http://h/v1 --prompt-seed 7");
    let given = Synthetic { drawn_seed: 9, point: 3, ..given };
    assert_eq!((given.seed_of(Part::Warmup), given.seed_of(Part::Performance)), (7, 7));
    assert_ne!(given.seed_of(Part::Preflight), 7);
}
