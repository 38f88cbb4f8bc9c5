//! Against servers that chunk, stall, cut and lie, and an adapter that breaks its rules.

mod adapter;
mod clocks;
mod request;
mod response;
mod server;
mod stop;

use std::process::Command;
use std::sync::{Arc, Mutex};

use dsh_plugin_api::json::Raw;
use dsh_plugin_api::vocab::{Chunk, EnvelopeId, Exchange, Failure, FinishReason, HttpRequest, RouteInfo, Target};

use self::adapter::{Lines, Saw};
use self::server::{Server, Step};
use crate::llm::client::{Client, Prepared, ResponseStream};
use crate::llm::registry::Route;
use crate::manifest::Transport;

/// Nothing in a test lasts as long, so that only what a test sets can run out.
const PATIENT: Transport = Transport {
    connect_timeout_ms: 30_000,
    idle_timeout_ms: 30_000,
    progress_timeout_ms: 30_000,
    max_retries: 0,
    retry_base_ms: 1,
    retry_max_ms: 1,
};

fn request(origin: &str) -> HttpRequest {
    let body: Raw = serde_json::from_str(r#"{"b":1,  "a":12345678901234567890123}"#).unwrap();
    HttpRequest { method: "POST".into(), url: format!("{origin}/v1/x"), headers: Vec::new(), body }
}

fn prepared(adapter: Lines, origin: Option<&str>, credential: Option<&str>, exchange: Exchange) -> Prepared {
    let info = RouteInfo {
        name: "local".into(),
        api: None,
        origin: origin.map(str::to_owned),
        credential: credential.map(str::to_owned),
        models: Vec::new(),
        any_model: true,
    };
    let route = Route {
        info,
        adapter: "lines".into(),
        envelope: EnvelopeId { kind: "lines".into(), version: 1 },
        handle: Arc::new(adapter),
        credential: credential.map(str::to_owned),
        origin: origin.map(str::to_owned),
    };
    Prepared {
        route: Arc::new(route),
        target: Target { provider: "local".into(), model: "m".into() },
        exchange,
        degraded: Vec::new(),
        neutral: Vec::new(),
        repairs: Vec::new(),
        fates: Vec::new(),
        native: 0,
        images: Vec::new(),
    }
}

fn to(server: &Server, adapter: Lines) -> Prepared {
    prepared(adapter, Some(&server.origin), None, Exchange::Http(request(&server.origin)))
}

/// What a reader got: the text, and the one finish.
struct Got {
    text: String,
    reason: FinishReason,
}

impl Got {
    fn failure(&self) -> &Failure {
        self.reason.failure().unwrap()
    }
}

async fn read(stream: &mut ResponseStream) -> Got {
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk);
    }
    assert!(stream.next().await.is_none(), "a chunk after the end");
    assert!(stream.cancel().is_empty(), "a chunk is due after the end");
    got(chunks)
}

/// Checks the grammar: one finish, at the end.
fn got(mut chunks: Vec<Chunk>) -> Got {
    let Some(Chunk::Finish { reason, .. }) = chunks.pop() else { panic!("the last chunk is no finish") };
    let text = chunks.into_iter().map(|chunk| match chunk {
        Chunk::TextDelta { text, .. } => text,
        other => panic!("unexpected {other:?}"),
    });
    Got { text: text.collect(), reason }
}

async fn exchange(config: Transport, prepared: &Prepared) -> Got {
    read(&mut Client::new(config).open(prepared)).await
}

/// One request to a server with this script.
async fn against(config: Transport, script: Vec<Step>, adapter: Lines) -> (Got, Arc<Mutex<Saw>>, Server) {
    let server = Server::start(vec![script]).await;
    let saw = Arc::clone(&adapter.saw);
    let got = exchange(config, &to(&server, adapter)).await;
    (got, saw, server)
}

/// Runs a test of [`request`] again in a process of its own, with other environment variables. True in that process.
fn in_child(test: &str, variables: &[(&str, &str)]) -> bool {
    const MARK: &str = "DSH_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let name = format!("llm::exchange::tests::request::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--test-threads=1"]).env(MARK, "1").envs(variables.iter().copied());
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
    false
}
