//! What the requests of every wire of this adapter share.

use dsh_plugin_api::kit::request;
use dsh_plugin_api::vocab::{Request, Tool};

pub(crate) use dsh_plugin_api::kit::request::{IMAGE_SIZE, bearer, headers, offered, size, within_window};

use crate::config::Model;

/// The output limit in tokens: what the request or the model says, cut to what fits the window beside the prompt.
/// `sizes` are those of the messages, the system prompt among them, in UTF-16 units; four make a token.
pub(crate) fn output_limit(
    request: &Request,
    model: &Model,
    sizes: impl Iterator<Item = usize>,
    tools: &[&Tool],
) -> Option<u64> {
    let wanted = request.max_tokens.or(model.max_tokens).filter(|limit| *limit > 0)?;
    Some(request::within_window(wanted, model.context_window, sizes, tools))
}
