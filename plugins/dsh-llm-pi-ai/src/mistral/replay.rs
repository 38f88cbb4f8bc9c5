//! What this wire carries along with its blocks: nothing. Reasoning goes back as thinking parts with its text.

use dsh_plugin_api::vocab::InvalidReplay;

use crate::config::ApiName;
use crate::envelope::{StoredEntry, nothing};
use crate::turn::Carriers;

/// What this wire carries along with its blocks.
#[derive(Debug, Clone)]
pub(crate) enum Mistral {}

/// One message.
pub(crate) type Turn = crate::turn::Turn<Mistral>;
/// One block.
pub(super) type Part = crate::turn::Part<Mistral>;
/// A tool call.
pub(super) type Call = crate::turn::Call<Mistral>;

impl Carriers for Mistral {
    const API: ApiName = ApiName::MistralConversations;
    type Text = ();
    type Reasoning = ();
    type Call = ();

    fn text(at: usize, entry: &StoredEntry) -> Result<(), InvalidReplay> {
        nothing(at, "textSignature", entry.text_signature.is_some())
    }

    fn reasoning(at: usize, entry: &StoredEntry) -> Result<(), InvalidReplay> {
        nothing(at, "redacted", entry.redacted)
    }

    fn call(at: usize, entry: &StoredEntry) -> Result<(), InvalidReplay> {
        nothing(at, "thoughtSignature", entry.thought_signature.is_some())
    }
}
