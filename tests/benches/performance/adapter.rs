//! The adapter under test, in both of its forms: as a library that is loaded, and linked in.

use std::sync::Arc;

use dsh_host::loader::{AdapterHandle, LibraryRef, LibrarySpec, Loader};
use dsh_llm_pi_ai::PiAi;
use dsh_plugin_api::abi::calls::{Open, OpenHead};
use dsh_plugin_api::vocab::Target;
use dsh_plugin_api::{Adapter, ResponseHead};
use dsh_tests::built;
use serde_json::json;
use tempfile::TempDir;

use super::streams::{DEEPSEEK, STREAMS};

/// A configuration with one route for each wire, named by the wire.
fn config() -> serde_json::Value {
    let apis: std::collections::BTreeSet<&str> =
        STREAMS.iter().map(|form| form.api).filter(|api| *api != DEEPSEEK).collect();
    let providers = apis.into_iter().map(|api| {
        let provider = json!({"api": api, "base_url": "http://gateway.test/v1", "credential": "KEY", "models": [
            {"id": "m", "context_window": 200_000, "max_tokens": 8192, "reasoning": true, "input": ["text", "image"]}]});
        (api.to_owned(), provider)
    });
    json!({"providers": providers.collect::<serde_json::Map<_, _>>()})
}

/// The target of a wire's route.
pub fn target(api: &str) -> Target {
    Target { provider: api.to_owned(), model: "m".to_owned() }
}

/// The adapter as a value of this process.
pub fn linked() -> PiAi {
    PiAi::new(serde_json::from_value(config()).unwrap()).unwrap()
}

/// The adapter as the host loads it. The folder holds the copy that is mapped.
pub fn loaded() -> (Arc<dyn AdapterHandle>, TempDir) {
    load("dsh-llm-pi-ai", &config())
}

/// The adapter of DeepSeek's own API as the host loads it. It cannot be linked in beside the other: each exports the same
/// symbol.
pub fn loaded_deepseek() -> (Arc<dyn AdapterHandle>, TempDir) {
    let route = json!({"base_url": "http://deepseek.test", "credential": "KEY", "models": [
        {"id": "m", "context_window": 200_000, "max_tokens": 8192, "thinking": true, "images": true}]});
    load("dsh-llm-deepseek", &json!({"providers": {(DEEPSEEK): route}}))
}

fn load(name: &str, config: &serde_json::Value) -> (Arc<dyn AdapterHandle>, TempDir) {
    let home = TempDir::new().unwrap();
    let library = LibraryRef::Path(built().library(name));
    let library = Loader::new(home.path()).load(&LibrarySpec { library, sha256: None }).unwrap();
    let (handle, _) = library.create(config).unwrap();
    (handle, home)
}

/// Head of a streamed answer, for the trait.
pub fn head() -> ResponseHead {
    ResponseHead::Http { status: 200, headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())] }
}

/// The same for the loaded adapter.
pub fn open(api: &str) -> Open {
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    Open { target: target(api), head: OpenHead::Http { status: 200, headers } }
}
