//! Texts that stand where a wire or a model cannot take what the history holds.

/// An image of the user, for a model that takes none.
pub const IMAGE_OMITTED: &str = "(image omitted: model does not support images)";
/// An image of a tool, for a model that takes none.
pub const TOOL_IMAGE_OMITTED: &str = "(tool image omitted: model does not support images)";
/// An image of which only a reference is there.
pub const IMAGE_UNAVAILABLE: &str = "(image omitted: its data is not available)";
/// Introduces the images of tool results where they cannot stand in the results.
pub const TOOL_IMAGES: &str = "Attached image(s) from tool result:";
/// The text of a tool result that is images alone.
pub const SEE_IMAGE: &str = "(see attached image)";
/// The text of a tool result without content.
pub const NO_OUTPUT: &str = "(no tool output)";
/// Stands where a wire wants the user to speak first.
pub const CONVERSATION_GOES_ON: &str = "(continuing the conversation)";
/// An image of a type that the provider refuses.
pub const IMAGE_FORMAT: &str = "(image omitted: the provider takes no images of its type)";
/// Stands where a wire or a dialect wants an assistant message between tool results and the user.
pub const RESULTS_SEEN: &str = "I have processed the tool results.";
