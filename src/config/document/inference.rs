//! The part of `config.yaml` that is about an inference endpoint: `model_params` and `datasets`
//! with the keys of `endpoints`, and how answers are read, which has keys of ours.

use serde_json::{Value, json};

use super::without_nulls;
use crate::config::Config;
use crate::config::inference::{Inference, Part, Prompts, format_name, length_text};

/// What each body asks for.
pub fn model_params(run: &Inference) -> Value {
    let sampling = &run.sampling;
    let yes = |is: bool| is.then_some(true);
    without_nulls(json!({
        "name": sampling.model,
        "streaming": if sampling.stream { "on" } else { "off" },
        "max_new_tokens": sampling.max_tokens,
        "min_new_tokens": sampling.min_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop": (!sampling.stop.is_empty()).then_some(&sampling.stop),
        "system": sampling.system,
        "ignore_eos": yes(sampling.ignore_eos),
        "legacy_max_tokens": yes(sampling.legacy_max_tokens),
        "tokenizer_name": run.tokenizer.text(),
        "extra_body": (!sampling.extra.is_empty()).then_some(&sampling.extra),
    }))
}

/// Where the prompts come from.
pub fn datasets(config: &Config) -> Vec<Value> {
    if let Some(path) = &config.targets {
        let path = path.to_string_lossy();
        return vec![json!({
            "name": "targets", "type": "performance", "path": path, "format": "vegeta",
        })];
    }
    let Some(run) = &config.inference else { return Vec::new() };
    let entry = match &run.prompts {
        Prompts::Body => return Vec::new(),
        Prompts::Dataset { path, options } => json!({
            "name": path.file_stem().map(|name| name.to_string_lossy()),
            "type": "performance",
            "path": path.to_string_lossy(),
            "format": options.format.map(format_name),
            "samples": options.limit,
            "parser": parser(&options.columns),
            "skip_bad_rows": options.skips_bad_rows.then_some(true),
        }),
        Prompts::Synthetic(synthetic) => json!({
            "name": "synthetic",
            "type": "performance",
            "isl": length_text(synthetic.isl),
            "osl": synthetic.osl.map(length_text),
            "prompts": synthetic.count,
            "prompt_seed": synthetic.seed_of(Part::Performance),
            "prompt_seed_is_given": synthetic.seed.is_some(),
        }),
    };
    vec![without_nulls(entry)]
}

/// Roles and the names of their columns, if any were given.
fn parser(columns: &[(String, String)]) -> Option<Value> {
    let pairs = columns.iter().map(|(role, name)| (role.clone(), json!(name)));
    (!columns.is_empty()).then(|| pairs.collect())
}

/// How it is asked, and how answers are read.
pub fn reading(run: &Inference) -> Value {
    without_nulls(json!({
        "preflight": run.has_preflight,
        "include_usage": run.sampling.include_usage,
        "lenient": run.is_lenient,
        "response_field": run.response_field_text,
        "defaults": run.defaults,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::written;

    #[test]
    fn an_inference_run_is_written_with_the_keys_of_endpoints() {
        let (_, value) = written(&[
            "concurrency",
            "http://h/v1",
            "-c",
            "4",
            "--model",
            "tiny",
            "--dataset",
            "perf:data/q.jsonl,prompt=question,format=jsonl,limit=500",
            "--max-output-tokens",
            "64",
            "--temperature",
            "0.5",
            "--top-k",
            "-1",
            "--extra-body",
            "{\"seed\": 1}",
            "--no-stream",
            "--skip-bad-rows",
            "--tokenizer",
            "o200k",
            "--records-full",
        ]);
        assert_eq!(
            value["model_params"],
            json!({"name": "tiny", "streaming": "off", "max_new_tokens": 64, "temperature": 0.5,
                   "top_k": -1, "tokenizer_name": "o200k", "extra_body": {"seed": 1}})
        );
        assert_eq!(
            value["datasets"],
            json!([{"name": "q", "type": "performance", "path": "data/q.jsonl",
                    "format": "jsonl", "samples": 500, "parser": {"prompt": "question"},
                    "skip_bad_rows": true}])
        );
        assert_eq!(value["endpoint_config"]["api_type"], "openai");
        assert_eq!(value["phases"][0]["drain_timeout"], "240s");
        assert_eq!(value["phases"][0].get("duration"), None, "one pass");
        assert_eq!(value["records"], "full");
        assert_eq!(
            value["inference"],
            json!({"preflight": true, "include_usage": true, "lenient": false,
                   "defaults": ["api"]})
        );
    }

    #[test]
    fn synthetic_prompts_are_written_with_their_lengths() {
        let (_, value) = written(&["http://h/v1", "--isl", "550~50", "--prompt-seed", "7"]);
        assert_eq!(
            value["datasets"],
            json!([{"name": "synthetic", "type": "performance", "isl": "550~50", "osl": "128",
                    "prompt_seed": 7, "prompt_seed_is_given": true}])
        );
    }

    #[test]
    fn plain_http_has_none_of_it() {
        let (_, value) = written(&["http://h/"]);
        for key in ["model_params", "datasets", "inference"] {
            assert_eq!(value.get(key), None, "{key}");
        }
        let (_, value) = written(&["--targets", "list.txt"]);
        assert_eq!(value["datasets"][0]["format"], "vegeta");
    }
}
