//! Tokenizers: two of OpenAI are built in, others come from a `tokenizer.json` on this host.
//! Nothing is fetched from a network.
//!
//! Counts are those of the text alone: what a chat template or the server puts around it is not
//! known here. A [`Tokenizer`] is used from several threads, never from those of the load.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, shown};

/// A tokenizer, for use from several threads.
pub struct Tokenizer {
    model: Model,
    name: String,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

enum Model {
    Builtin(&'static bpe_openai::Tokenizer),
    File(Box<tokenizers::Tokenizer>),
}

impl Tokenizer {
    /// One of those built in: `cl100k` or `o200k`.
    pub fn builtin(name: &str) -> Option<Tokenizer> {
        let model = match name {
            "cl100k" => bpe_openai::cl100k_base(),
            "o200k" => bpe_openai::o200k_base(),
            _ => return None,
        };
        Some(Tokenizer { model: Model::Builtin(model), name: format!("{name}, built in") })
    }

    /// A `tokenizer.json`.
    pub fn from_file(path: &Path) -> Result<Tokenizer, Error> {
        let shown_path = path.display();
        let bytes = fs::read(path).map_err(|error| {
            Error::usage(format!(
                "cannot read the tokenizer `{shown_path}`: {error}; --tokenizer takes the path of \
                 a tokenizer.json, or one of o200k, cl100k, auto, none"
            ))
        })?;
        let model = load(&bytes).map_err(|reason| {
            Error::usage(format!(
                "the tokenizer `{shown_path}` does not load: {}; it must be a tokenizer.json as \
                 Hugging Face's tokenizers library writes it",
                shown(&reason)
            ))
        })?;
        Ok(Tokenizer { model: Model::File(Box::new(model)), name: format!("{shown_path}") })
    }

    /// The tokenizer of a model in the hub cache of this host (`HF_HUB_CACHE`, `HF_HOME`) or, for
    /// a model that is named by a folder, in it; `None` if there is none.
    pub fn from_hub_cache(model: &str) -> Result<Option<Tokenizer>, Error> {
        let cache = hub_cache(|name| std::env::var_os(name));
        let Some(file) = local_file(cache.as_deref(), model) else { return Ok(None) };
        let mut tokenizer = Tokenizer::from_file(&file)?;
        tokenizer.name = format!("that of {}, from this host", shown(model));
        Ok(Some(tokenizer))
    }

    /// Tokens of a text; none are added before or after it.
    pub fn count(&self, text: &str) -> usize {
        match &self.model {
            Model::Builtin(model) => model.count(text),
            Model::File(model) => encoding(model, text).len(),
        }
    }

    /// The ids of the tokens of a text; none are added before or after it.
    #[cfg(test)]
    pub fn encode(&self, text: &str) -> Vec<u32> {
        match &self.model {
            Model::Builtin(model) => model.encode(text),
            Model::File(model) => encoding(model, text).get_ids().to_vec(),
        }
    }

    /// The text of token ids; ids that there are not are left out, bytes that are no text replaced.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.model {
            Model::Builtin(model) => {
                let known = |id: &u32| (*id as usize) < model.bpe.num_tokens();
                let tokens: Vec<u32> = tokens.iter().copied().filter(known).collect();
                String::from_utf8_lossy(&model.bpe.decode_tokens(&tokens)).into_owned()
            }
            Model::File(model) => model.decode(tokens, false).unwrap_or_default(),
        }
    }

    /// Into how many pieces a text is cut before tokens are looked for within each: the tokens of
    /// the text are those of its pieces.
    pub fn pieces(&self, text: &str) -> usize {
        match &self.model {
            Model::Builtin(model) => model.split(text).count(),
            Model::File(model) => {
                let encoding = model.encode(text, false).expect(ENCODES);
                let mut pieces = encoding.get_word_ids().to_vec();
                pieces.dedup();
                pieces.len()
            }
        }
    }

    /// Ids are below this.
    pub fn vocabulary(&self) -> u32 {
        match &self.model {
            Model::Builtin(model) => model.bpe.num_tokens() as u32,
            Model::File(model) => model.get_vocab_size(true) as u32,
        }
    }

    /// Where it is from, as the report says it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn encoding(model: &tokenizers::Tokenizer, text: &str) -> tokenizers::Encoding {
    model.encode_fast(text, false).expect(ENCODES)
}

/// Loads a `tokenizer.json` and leaves out what would change counts: a text is neither cut nor
/// filled up.
fn load(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    let mut model = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
    model.with_truncation(None).map_err(|error| error.to_string())?;
    model.with_padding(None);
    // The one thing on which encoding fails is a word that is neither in the vocabulary nor has a
    // token for unknown words to stand for it.
    model
        .encode_fast(UNKNOWN_WORDS, false)
        .map_err(|error| format!("it cannot encode every text ({error})"))?;
    Ok(model)
}

const ENCODES: &str = "a text of unknown words was encoded when it was loaded";

/// Words that no vocabulary has: of two private characters, and of letters.
const UNKNOWN_WORDS: &str = "\u{10fffd}\u{f8ff} qzxjvkqzxjvk";

/// The folder of the hub cache, by the rules of the `huggingface_hub` library.
fn hub_cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || {
        path("HF_HOME")
            .or_else(|| path("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
            .or_else(|| path("HOME").map(|home| home.join(".cache/huggingface")))
    };
    path("HF_HUB_CACHE")
        .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| home().map(|home| home.join("hub")))
}

/// The `tokenizer.json` of a model: in the folder that the name is, or in the snapshot that
/// `refs/main` of the cache names, or in the only snapshot.
fn local_file(cache: Option<&Path>, model: &str) -> Option<PathBuf> {
    let in_folder = Path::new(model).join(FILE_NAME);
    if in_folder.is_file() {
        return Some(in_folder);
    }
    // Without slashes the name stays one folder, whatever a server calls its model.
    let model = cache?.join(format!("models--{}", model.replace('/', "--")));
    let snapshots = model.join("snapshots");
    let revision = match fs::read_to_string(model.join("refs/main")) {
        Ok(revision) => snapshots.join(revision.trim()),
        Err(_) => {
            let mut all = fs::read_dir(&snapshots).ok()?.flatten();
            match (all.next(), all.next()) {
                (Some(only), None) => only.path(),
                _ => return None,
            }
        }
    };
    Some(revision.join(FILE_NAME)).filter(|file| file.is_file())
}

const FILE_NAME: &str = "tokenizer.json";

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Words as they are, by white space; `[UNK]` for all others.
    pub fn of_words(words: &[&str], has_unknown: bool) -> Tokenizer {
        let words = words.iter().enumerate().map(|(id, word)| format!("\"{word}\":{}", id + 1));
        let words: Vec<String> = words.collect();
        let unknown = if has_unknown { "\"[UNK]\":0," } else { "" };
        from_text(&format!(
            r#"{{"version":"1.0","truncation":{{"direction":"Right","max_length":3,
            "strategy":"LongestFirst","stride":0}},"padding":null,"added_tokens":[],
            "normalizer":null,"pre_tokenizer":{{"type":"WhitespaceSplit"}},"post_processor":null,
            "decoder":null,"model":{{"type":"WordLevel","vocab":{{{unknown}{}}},
            "unk_token":"[UNK]"}}}}"#,
            words.join(",")
        ))
        .unwrap()
    }

    /// A character a token: byte-pair encoding without any pair.
    pub fn of_characters(characters: &str) -> Tokenizer {
        let entry = |(id, c): (usize, char)| format!("\"{c}\":{id}");
        let vocabulary: Vec<String> = characters.chars().enumerate().map(entry).collect();
        from_text(&format!(
            r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
            "normalizer":null,"pre_tokenizer":null,"post_processor":null,
            "decoder":{{"type":"Fuse"}},
            "model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
            "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,
            "vocab":{{{}}},"merges":[]}}}}"#,
            vocabulary.join(",")
        ))
        .unwrap()
    }

    fn from_text(text: &str) -> Result<Tokenizer, String> {
        let model = Model::File(Box::new(load(text.as_bytes())?));
        Ok(Tokenizer { model, name: "test".to_owned() })
    }

    #[test]
    fn those_built_in_give_the_ids_of_tiktoken() {
        let cl100k = Tokenizer::builtin("cl100k").unwrap();
        let o200k = Tokenizer::builtin("o200k").unwrap();
        let cases: [(&Tokenizer, &str, &[u32]); 6] = [
            (&cl100k, "hello world", &[15339, 1917]),
            (&cl100k, "tiktoken is great!", &[83, 1609, 5963, 374, 2294, 0]),
            (&cl100k, "2 + 2 = 4", &[17, 489, 220, 17, 284, 220, 19]),
            (
                &cl100k,
                "お誕生日おめでとう",
                &[33334, 45918, 243, 21990, 9080, 33334, 62004, 16556, 78699],
            ),
            (&o200k, "hello world", &[24912, 2375]),
            (&o200k, "お誕生日おめでとう", &[8930, 9697, 243, 128225, 8930, 17693, 4344, 48669]),
        ];
        for (tokenizer, text, ids) in cases {
            assert_eq!(tokenizer.encode(text), ids, "{text} in {}", tokenizer.name());
            assert_eq!(tokenizer.count(text), ids.len());
            assert_eq!(tokenizer.decode(ids), text);
        }
        assert_eq!(cl100k.count(""), 0);
        assert_eq!(cl100k.name(), "cl100k, built in");
        assert!(Tokenizer::builtin("p50k").is_none());
        assert_eq!(cl100k.decode(&[15339, 4_000_000, 1917]), "hello world");
    }

    #[test]
    fn a_file_is_used_without_its_limit_of_length() {
        let tokenizer = of_words(&["red", "green", "blue"], true);
        assert_eq!(tokenizer.encode("red  blue\nmauve red green"), [1, 3, 0, 1, 2]);
        assert_eq!(tokenizer.count("red blue mauve red green"), 5);
    }

    #[test]
    fn pieces_are_what_a_text_is_cut_into_first() {
        let cases = [
            (Tokenizer::builtin("cl100k").unwrap(), "a tokenizer, cut", 4),
            (of_words(&["red"], true), "red  blue\nred", 3),
            (of_characters("abc "), "a cab", 1),
        ];
        for (tokenizer, text, pieces) in cases {
            assert_eq!(tokenizer.pieces(text), pieces, "{text}");
        }
    }

    #[test]
    fn characters_are_counted_one_by_one() {
        let tokenizer = of_characters("abc ");
        assert_eq!(tokenizer.encode("a cab"), [0, 3, 2, 0, 1]);
        assert_eq!(tokenizer.decode(&[0, 3, 2, 0, 1]), "a cab");
    }

    #[test]
    fn a_file_that_is_missing_or_no_tokenizer_is_a_clear_error() {
        let missing = Tokenizer::from_file(Path::new("/nowhere/tokenizer.json"));
        let Err(Error::Usage(text)) = missing else { panic!("it was read") };
        assert!(
            text.starts_with("cannot read the tokenizer `/nowhere/tokenizer.json`: "),
            "{text}"
        );
        assert!(text.contains("o200k, cl100k, auto, none"), "{text}");
        for bytes in ["", "{}", "[1", "{\"version\":\"1.0\"}"] {
            assert!(load(bytes.as_bytes()).is_err(), "{bytes}");
        }
    }

    #[test]
    #[should_panic(expected = "cannot encode every text")]
    fn a_vocabulary_that_cannot_stand_for_every_text_is_refused_when_it_is_loaded() {
        of_words(&["red"], false);
    }

    #[test]
    fn the_hub_cache_is_where_the_hub_library_has_it() {
        let with = |set: &[(&str, &str)]| {
            let set: Vec<(String, OsString)> =
                set.iter().map(|(name, value)| (name.to_string(), OsString::from(value))).collect();
            hub_cache(|name| set.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone()))
        };
        let cases: [(&[(&str, &str)], &str); 5] = [
            (&[("HOME", "/h")], "/h/.cache/huggingface/hub"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("HF_HOME", "/hf"), ("XDG_CACHE_HOME", "/x")], "/hf/hub"),
            (&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")], "/c"),
            (&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "")], "/hf/hub"),
        ];
        for (set, folder) in cases {
            assert_eq!(with(set), Some(PathBuf::from(folder)), "{set:?}");
        }
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn the_snapshot_of_main_is_taken_or_the_only_one() {
        let root = std::env::temp_dir().join(format!("loadgen-hub-{}", std::process::id()));
        let model = root.join("models--org--tiny");
        for snapshot in ["one", "two"] {
            fs::create_dir_all(model.join("snapshots").join(snapshot)).unwrap();
        }
        let file = |snapshot: &str| model.join("snapshots").join(snapshot).join(FILE_NAME);
        fs::write(file("two"), "{}").unwrap();
        let found = || local_file(Some(&root), "org/tiny");
        assert_eq!(found(), None, "two snapshots and nothing that says which");
        fs::create_dir_all(model.join("refs")).unwrap();
        fs::write(model.join("refs/main"), "two\n").unwrap();
        assert_eq!(found(), Some(file("two")));
        fs::write(model.join("refs/main"), "one").unwrap();
        assert_eq!(found(), None, "the snapshot of main has no tokenizer");
        fs::remove_dir_all(model.join("refs")).unwrap();
        fs::remove_dir_all(model.join("snapshots/one")).unwrap();
        assert_eq!(found(), Some(file("two")));
        let folder = model.join("snapshots/two");
        assert_eq!(local_file(None, folder.to_str().unwrap()), Some(file("two")));
        assert_eq!(local_file(Some(&root), "../models--org--tiny"), None);
        let nowhere = Tokenizer::from_hub_cache("no-one/has-a-model-of-this-name").unwrap();
        assert!(nowhere.is_none());
        fs::remove_dir_all(&root).unwrap();
    }
}
