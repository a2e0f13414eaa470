//! Which requests are more than plain ones.

/// What a request asks for, by method and path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// The same answer as ever. HEAD is always plain.
    #[default]
    Plain,
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/generate`, SGLang's own.
    Generate,
    /// `/tokenize`
    Tokenize,
    /// `/v1/models`
    Models,
    /// `/health`
    Health,
    /// `/metrics`
    Metrics,
    /// A path of the above with another method.
    WrongMethod,
    /// A body beyond [`BODY_BYTES_LIMIT`](crate::request).
    TooLarge,
}

/// A path that has a route, and its method.
#[derive(Debug)]
pub(crate) struct Entry {
    path: &'static str,
    method: &'static str,
    route: Route,
}

impl Route {
    /// The body is kept for who answers.
    pub(crate) fn takes_body(self) -> bool {
        matches!(
            self,
            Route::Chat
                | Route::Completions
                | Route::Embeddings
                | Route::Generate
                | Route::Tokenize
        )
    }

    /// The route of a request, among those of `entries`.
    pub(crate) fn of(entries: &[Entry], method: &str, target: &str) -> Route {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        match entries.iter().find(|entry| entry.path == path) {
            None => Route::Plain,
            Some(_) if method == "HEAD" => Route::Plain,
            Some(entry) if entry.method == method => entry.route,
            Some(_) => Route::WrongMethod,
        }
    }
}

/// Routes of an inference endpoint; the last one is SGLang's alone.
pub(crate) const WITH_GENERATE: &[Entry] = &[
    Entry { path: "/v1/chat/completions", method: "POST", route: Route::Chat },
    Entry { path: "/v1/completions", method: "POST", route: Route::Completions },
    Entry { path: "/v1/embeddings", method: "POST", route: Route::Embeddings },
    Entry { path: "/tokenize", method: "POST", route: Route::Tokenize },
    Entry { path: "/v1/models", method: "GET", route: Route::Models },
    Entry { path: "/health", method: "GET", route: Route::Health },
    Entry { path: "/metrics", method: "GET", route: Route::Metrics },
    Entry { path: "/generate", method: "POST", route: Route::Generate },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_follow_method_and_path() {
        for (method, target, route) in [
            ("POST", "/v1/chat/completions", Route::Chat),
            ("POST", "/v1/chat/completions?a=/b", Route::Chat),
            ("GET", "/v1/chat/completions", Route::WrongMethod),
            ("HEAD", "/v1/models", Route::Plain),
            ("GET", "/v1/models", Route::Models),
            ("GET", "/v1/models/", Route::Plain),
            ("GET", "/", Route::Plain),
            ("POST", "/generate", Route::Generate),
        ] {
            assert_eq!(Route::of(WITH_GENERATE, method, target), route, "{method} {target}");
            assert_eq!(Route::of(&[], method, target), Route::Plain);
        }
        let without = &WITH_GENERATE[..WITH_GENERATE.len() - 1];
        assert_eq!(Route::of(without, "POST", "/generate"), Route::Plain);
    }
}
