//! A scripted adapter for tests.

use std::sync::{Arc, Mutex};

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{CheckHistory, Convert, Converted, Open};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{
    EnvelopeId, Exchange, Failure, FailureCode, HeaderValue, HttpHeader, HttpRequest, InvalidReplay, ReplayDegrade,
    RouteInfo, Target,
};

use super::registry::Route;
use crate::loader::{AdapterHandle, StreamHandle};

type Check = dyn Fn(&CheckHistory) -> Result<Vec<Option<InvalidReplay>>, Failure> + Send + Sync;
type ConvertWith = dyn Fn(&Convert) -> Result<Converted, Failure> + Send + Sync;

/// Accepts every envelope and echoes the request, unless a test says otherwise.
pub(crate) struct FakeAdapter {
    pub check: Box<Check>,
    pub convert: Box<ConvertWith>,
    pub hook: Result<(), Failure>,
    pub checked: Mutex<Vec<CheckHistory>>,
    pub converted: Mutex<Vec<Convert>>,
    pub told: Mutex<Vec<ReplayDegrade>>,
    /// What each call of a stream gives, in order; then nothing.
    pub items: Mutex<Vec<Vec<Item>>>,
    pub fed: Arc<Mutex<Vec<String>>>,
    pub ends: Arc<Mutex<Vec<StreamEnd>>>,
}

impl Default for FakeAdapter {
    fn default() -> Self {
        Self {
            check: Box::new(|call| Ok(vec![None; call.messages.len()])),
            convert: Box::new(|call| {
                let Exchange::Http(mut request) = http("https://api.example.test/v1") else { unreachable!() };
                request.body = raw(&call.request);
                Ok(Converted { exchange: Exchange::Http(request), repairs: Vec::new() })
            }),
            hook: Ok(()),
            checked: Mutex::default(),
            converted: Mutex::default(),
            told: Mutex::default(),
            items: Mutex::default(),
            fed: Arc::default(),
            ends: Arc::default(),
        }
    }
}

impl AdapterHandle for FakeAdapter {
    fn check_history(&self, call: &CheckHistory) -> Result<Vec<Option<InvalidReplay>>, Failure> {
        self.checked.lock().unwrap().push(call.clone());
        (self.check)(call)
    }

    fn convert(&self, call: &Convert) -> Result<Converted, Failure> {
        self.converted.lock().unwrap().push(call.clone());
        (self.convert)(call)
    }

    fn on_replay_degrade(&self, event: &ReplayDegrade) -> Result<(), Failure> {
        self.told.lock().unwrap().push(event.clone());
        self.hook.clone()
    }

    fn open(&self, _: &Open) -> Result<Box<dyn StreamHandle>, Failure> {
        let mut items = std::mem::take(&mut *self.items.lock().unwrap());
        items.reverse();
        Ok(Box::new(Scripted { items, fed: Arc::clone(&self.fed), ends: Arc::clone(&self.ends) }))
    }
}

struct Scripted {
    items: Vec<Vec<Item>>,
    fed: Arc<Mutex<Vec<String>>>,
    ends: Arc<Mutex<Vec<StreamEnd>>>,
}

impl StreamHandle for Scripted {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Item> {
        self.fed.lock().unwrap().push(String::from_utf8_lossy(bytes).into_owned());
        self.items.pop().unwrap_or_default()
    }

    fn finish(&mut self, end: &StreamEnd) -> Vec<Item> {
        self.ends.lock().unwrap().push(end.clone());
        self.items.pop().unwrap_or_default()
    }

    fn poll(&mut self) -> Vec<Item> {
        self.items.pop().unwrap_or_default()
    }

    fn cancel(&mut self) -> Vec<Item> {
        Vec::new()
    }
}

/// A POST with the credential `KEY`.
pub(crate) fn http(url: &str) -> Exchange {
    Exchange::Http(HttpRequest {
        method: "POST".to_owned(),
        url: url.to_owned(),
        headers: vec![HttpHeader {
            name: "authorization".to_owned(),
            value: HeaderValue::Credential { reference: "KEY".to_owned(), prefix: "Bearer ".to_owned() },
        }],
        body: raw(&serde_json::json!({})),
    })
}

/// Route `p` of adapter `fake`, with envelopes `fake` version 2.
pub(crate) fn route(adapter: Arc<FakeAdapter>) -> Arc<Route> {
    let origin = Some("https://api.example.test".to_owned());
    let credential = Some("KEY".to_owned());
    Arc::new(Route {
        info: RouteInfo {
            name: "p".to_owned(),
            api: None,
            origin: origin.clone(),
            credential: credential.clone(),
            models: Vec::new(),
            any_model: true,
        },
        adapter: "fake".to_owned(),
        envelope: EnvelopeId { kind: "fake".to_owned(), version: 2 },
        handle: adapter,
        credential,
        origin,
    })
}

/// `p/m`
pub(crate) fn target() -> Target {
    Target { provider: "p".to_owned(), model: "m".to_owned() }
}

/// A panic as the loader reports it.
pub(crate) fn panicked() -> Failure {
    Failure::new(FailureCode::PluginPanic, "panicked at 'boom'")
}
