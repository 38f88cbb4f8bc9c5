//! From the events of a response to chunks.

use dsh_plugin_api::json::Raw;
use dsh_plugin_api::sse::SseEvent;
use dsh_plugin_api::vocab::{FailureCode, Target};
use dsh_plugin_api::{Chunks, StreamEnd};

use crate::config::ApiName;
use crate::envelope::ResponseFacts;
use dsh_plugin_api::kit::head::HeadFacts;

/// Decoder of one response.
pub(crate) type Decoder = dsh_plugin_api::kit::body::BodyDecoder<Answer>;

/// A decoder for a response to a request of this target.
pub(super) fn decoder(head: HeadFacts, target: &Target) -> Decoder {
    let facts = ResponseFacts::new(ApiName::AnthropicMessages, target.clone());
    Decoder::new(Answer { head, facts })
}

/// The answer as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    head: HeadFacts,
    facts: ResponseFacts,
}

impl dsh_plugin_api::kit::body::Answer for Answer {
    fn head(&self) -> &HeadFacts {
        &self.head
    }

    fn event(&mut self, _: &SseEvent, _: &mut Chunks) {}

    fn whole(&mut self, _: &str, _: &mut Chunks) {}

    fn end(&mut self, _: &StreamEnd, out: &mut Chunks) {
        let message = format!("{}: this version does not serve it yet", self.facts.api.name());
        out.fail(self.head.failure(FailureCode::Unsupported, message), None);
    }

    fn partial_half(&self) -> Option<Raw> {
        None
    }
}
