//! The ladder: what a refused request is sent without.
//!
//! A provider may refuse what looks sound here. The same bytes would be refused again, so the next attempt goes out
//! without what the refusal names, or may mean: older images, then all of them, where it names an image or a size; the
//! replay metadata, where it names no other cause. What a route refused is remembered for the session ([`Spared`]).
//!
//! Every rung takes something away that the request had, so the ladder ends: after two rungs for the images of a
//! request and one for its metadata. What people wrote is never taken away.
//!
//! Pure: it decides, and the agent acts. Providers agree on no code for these refusals, so their words are read; the
//! spellings in the tests are those of real answers.

use dsh_plugin_api::vocab::{Failure, FailureCode};

use super::prepare::Replay;

/// What a route is spared in a session, after it refused requests that had it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spared {
    /// Every message goes out foreign.
    pub metadata: bool,
    /// Position of the first message whose images are sent. Those of earlier messages are replaced by a note.
    pub images_from: usize,
}

/// One step down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Without replay metadata.
    Metadata,
    /// Without the images of the messages before this position.
    Images {
        /// See [`Spared::images_from`].
        from: usize,
    },
}

impl Spared {
    /// Spares the route this as well.
    pub fn add(&mut self, rung: Rung) {
        match rung {
            Rung::Metadata => self.metadata = true,
            Rung::Images { from } => self.images_from = self.images_from.max(from),
        }
    }

    /// Which metadata its requests carry.
    #[must_use]
    pub const fn replay(&self) -> Replay {
        if self.metadata { Replay::AllForeign } else { Replay::Routed }
    }

    /// True when nothing was refused.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What a refused request had that a further attempt could go without.
#[derive(Debug, Clone, Copy)]
pub struct Carried<'a> {
    /// How many messages went out with their metadata.
    pub native: usize,
    /// Position of the message of each image, in order.
    pub images: &'a [usize],
}

/// The next rung after a failed attempt of which nothing was shown; `None` when the failure is no refusal, or nothing
/// is left that it could mean.
#[must_use]
pub fn next(failure: &Failure, carried: Carried<'_>) -> Option<Rung> {
    if let (Some(first), Some(newest)) = (carried.images.first(), carried.images.last())
        && names_image_or_size(failure)
    {
        // The newest message with images is what the conversation is about; it keeps them as long as it can.
        let from = if first < newest { *newest } else { newest + 1 };
        return Some(Rung::Images { from });
    }
    (carried.native > 0 && may_mean_metadata(failure)).then_some(Rung::Metadata)
}

/// True when a provider refused a request as invalid (400, 404, 422), so that replay metadata may be the cause.
///
/// Refusals whose body names another cause are left out: a retry without metadata would lose fidelity for nothing.
const fn may_mean_metadata(failure: &Failure) -> bool {
    use FailureCode as Code;
    matches!(failure.status, Some(400 | 404 | 422))
        && !matches!(
            failure.code,
            Code::Auth
                | Code::RateLimit
                | Code::Quota
                | Code::ContextWindowExceeded
                | Code::Refused
                | Code::UnknownModel
                | Code::PluginPanic
                | Code::PluginCrashed
                | Code::PluginTimeout
        )
}

/// Of a request that is too large in bytes. Too many tokens is another matter, with a code of its own.
const SIZE: [&str; 13] = [
    "request_too_large",
    "request too large",
    "request is too large",
    "request entity too large",
    "content too large",
    "payload too large",
    "payload size",
    "body too large",
    "request body is too large",
    "request body size",
    "request size",
    "maximum size",
    "length limit exceeded",
];
/// Of images, and of models that take none.
const IMAGE: [&str; 8] = ["image", "multimodal", "multi-modal", "mmproj", "vision", "pixels", "图片", "图像"];
/// Of another part of the request that may have an image in its name, such as a tool.
const ELSEWHERE: [&str; 6] = ["schema", "tools.", "tools[", "tool name", "function", "does not exist"];
/// Of what a model cannot take, whatever the rest says.
const UNSUPPORTED: [&str; 4] = ["support", "not a multimodal", "mmproj", "without vision"];

/// True for a refusal of the request for its images or its size.
fn names_image_or_size(failure: &Failure) -> bool {
    use FailureCode as Code;
    if !matches!(
        failure.code,
        Code::InvalidRequest | Code::Refused | Code::UnknownModel | Code::Server | Code::Unsupported | Code::Other(_)
    ) {
        return false;
    }
    let said = failure.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let image = IMAGE.iter().any(|word| has_word(&said, word)) && !says(&ELSEWHERE);
    match failure.status {
        Some(413) => true,
        Some(400 | 415 | 422) => image || says(&SIZE),
        // A router without a server that takes images, and a local server that loaded a model without that part.
        Some(404 | 500 | 501) => image && says(&UNSUPPORTED),
        // An error object inside a stream.
        None | Some(200) => failure.code == Code::InvalidRequest && (image || says(&SIZE)),
        Some(_) => false,
    }
}

/// True when `text` has `word` other than as the end of a longer one (`revision` is no `vision`).
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| !text[..at].ends_with(|before: char| before.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure(code: &str, status: Option<u16>, message: &str) -> Failure {
        Failure { status, ..Failure::new(code.into(), message) }
    }

    const NATIVE: Carried<'_> = Carried { native: 1, images: &[] };
    const IMAGES: Carried<'_> = Carried { native: 0, images: &[2, 4, 4] };

    #[test]
    fn only_an_unexplained_refusal_blames_the_replay_metadata() {
        for (code, status, expected) in [
            ("INVALID_REQUEST", Some(400), true),
            ("INVALID_REQUEST", Some(404), true),
            ("INVALID_REQUEST", Some(422), true),
            ("SOMETHING_NEW", Some(400), true),
            ("PROTOCOL", Some(400), true),
            ("INVALID_REQUEST", Some(413), false),
            ("INVALID_REQUEST", None, false),
            ("SERVER", Some(500), false),
            ("AUTH", Some(400), false),
            ("RATE_LIMIT", Some(400), false),
            ("QUOTA", Some(400), false),
            ("CONTEXT_WINDOW_EXCEEDED", Some(400), false),
            ("REFUSED", Some(400), false),
            ("UNKNOWN_MODEL", Some(404), false),
            ("PLUGIN_PANIC", Some(400), false),
            ("PLUGIN_CRASHED", Some(400), false),
            ("PLUGIN_TIMEOUT", Some(400), false),
        ] {
            let rung = next(&failure(code, status, "x"), NATIVE);
            assert_eq!(rung, expected.then_some(Rung::Metadata), "{code} {status:?}");
        }
        assert_eq!(next(&failure("INVALID_REQUEST", Some(400), "x"), Carried { native: 0, images: &[] }), None);
    }

    /// Messages as providers and servers word them.
    #[test]
    fn a_refusal_that_names_an_image_or_a_size_is_known_in_every_spelling() {
        for (status, message) in [
            // Anthropic
            (
                400,
                "messages.2.content.0.image.source.base64: image exceeds 5 MB maximum: 8259148 bytes > 5242880 bytes",
            ),
            (
                400,
                "messages.19.content.27.image.source.base64.data: At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels",
            ),
            (
                400,
                "messages.7.content.2.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels",
            ),
            (400, "Could not process image"),
            (400, "Too many images and documents: 101 + 0 > 100"),
            (
                400,
                "messages.0.content.0.tool_result.content.0.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
            ),
            (413, "Request exceeds the maximum size"),
            (413, "the provider answered HTTP 413 without a body"),
            (413, "the provider answered HTTP 413: 413 Request Entity Too Large cloudflare"),
            (413, "failed to parse request"),
            // OpenAI and Azure
            (
                400,
                "You uploaded an unsupported image. Please make sure your image is below 20 MB in size and is of one the following formats: ['png', 'jpeg', 'gif', 'webp'].",
            ),
            (
                400,
                "The image data you provided does not represent a valid image. Please check your input and try again with one of the supported image formats.",
            ),
            (400, "Invalid content type. image_url is only supported by certain models."),
            (
                400,
                "Invalid 'messages[3].content[1].image_url.url'. Expected a base64-encoded data URL with an image MIME type.",
            ),
            (400, "Invalid request. (invalid_image)"),
            (400, "Request too large. (request_too_large)"),
            // Google
            (
                400,
                "Unable to process input image. Please retry or report in https://developers.generativeai.google/guide/troubleshooting",
            ),
            (400, "Provided image is not valid"),
            (400, "Request payload size exceeds the limit: 20971520 bytes."),
            (400, "Unsupported MIME type: image/svg+xml"),
            // Mistral, DeepSeek, Groq and other compatible services
            (400, "Total number of images in request exceeds the maximum of 8"),
            (
                422,
                "Failed to deserialize the JSON body into the target type: messages[0]: unknown variant `image_url`, expected `text` at line 1 column 90",
            ),
            (400, "This model does not support image input"),
            (400, "此模型不支持图像输入"),
            // Routers
            (404, "No endpoints found that support image input"),
            // Local servers
            (400, "At most 1 image(s) may be provided in one request."),
            (400, "my-model is not a multimodal model"),
            (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
            (400, "Failed to buffer the request body: length limit exceeded"),
            (415, "unsupported image"),
        ] {
            let code = if status == 500 { "SERVER" } else { "INVALID_REQUEST" };
            assert_eq!(
                next(&failure(code, Some(status), message), IMAGES),
                Some(Rung::Images { from: 4 }),
                "{message}"
            );
        }
        for status in [None, Some(200)] {
            let in_stream = failure("INVALID_REQUEST", status, "image exceeds 5 MB maximum");
            assert_eq!(next(&in_stream, IMAGES), Some(Rung::Images { from: 4 }), "{status:?}");
        }
        let filtered = failure("REFUSED", Some(400), "Your input image may contain content that is not allowed");
        assert_eq!(next(&filtered, IMAGES), Some(Rung::Images { from: 4 }));
    }

    #[test]
    fn other_refusals_do_not_cost_images() {
        for (code, status, message) in [
            ("INVALID_REQUEST", Some(400), "tool schema is wrong"),
            ("INVALID_REQUEST", Some(400), "tools.0.custom.name: 'edit image' is not valid"),
            ("INVALID_REQUEST", Some(400), "Invalid schema for function 'edit_image'"),
            ("INVALID_REQUEST", Some(400), "revision 7 is provisional"),
            ("INVALID_REQUEST", Some(400), "max_tokens: 999999 > 64000, which is the maximum allowed"),
            ("INVALID_REQUEST", Some(404), "The model `grok-2-vision` does not exist"),
            ("INVALID_REQUEST", Some(404), "model: image-1"),
            (
                "CONTEXT_WINDOW_EXCEEDED",
                Some(400),
                "prompt is too long: 210000 tokens > 200000 maximum, images included",
            ),
            ("CONTEXT_WINDOW_EXCEEDED", Some(413), "prompt is too long"),
            ("RATE_LIMIT", Some(413), "Request too large for model on tokens per minute"),
            ("AUTH", Some(400), "this key may not send an image"),
            ("AUTH", Some(403), "no image for you"),
            ("QUOTA", Some(402), "image budget"),
            ("RATE_LIMIT", Some(429), "too many images per minute"),
            ("SERVER", Some(500), "the image could not be read"),
            ("SERVER", Some(503), "image input is not supported"),
            ("SERVER", None, "image"),
            ("TRANSPORT", None, "the connection broke beside an image"),
            ("PLUGIN_PANIC", None, "image"),
        ] {
            assert_eq!(next(&failure(code, status, message), IMAGES), None, "{code} {status:?} {message}");
        }
    }

    #[test]
    fn older_images_go_before_the_newest_message_s_and_images_before_metadata() {
        let refusal = failure("INVALID_REQUEST", Some(400), "image exceeds 5 MB maximum");
        let rung = |native, images: &[usize]| next(&refusal, Carried { native, images });
        assert_eq!(rung(3, &[1, 5, 9]), Some(Rung::Images { from: 9 }));
        assert_eq!(rung(3, &[9, 9]), Some(Rung::Images { from: 10 }));
        assert_eq!(rung(3, &[0]), Some(Rung::Images { from: 1 }));
        // No image is left that it could mean.
        assert_eq!(rung(3, &[]), Some(Rung::Metadata));
        assert_eq!(rung(0, &[]), None);
        // What names no image costs none.
        let unnamed = failure("INVALID_REQUEST", Some(400), "bad signature");
        assert_eq!(next(&unnamed, Carried { native: 1, images: &[1, 2] }), Some(Rung::Metadata));
    }

    #[test]
    fn what_is_spared_only_grows() {
        let mut spared = Spared::default();
        assert!(spared.is_nothing());
        for (rung, expected) in [
            (Rung::Images { from: 4 }, (false, 4)),
            (Rung::Images { from: 2 }, (false, 4)),
            (Rung::Metadata, (true, 4)),
            (Rung::Images { from: 5 }, (true, 5)),
        ] {
            spared.add(rung);
            assert_eq!((spared.metadata, spared.images_from), expected);
            assert!(!spared.is_nothing());
        }
    }

    proptest! {
        /// A provider that refuses everything is asked a bounded number of times, and never twice for the same.
        #[test]
        fn the_ladder_ends(
            mut images in proptest::collection::vec(0usize..20, 0..8), mut native in 0usize..3,
            status in prop::sample::select(vec![400u16, 404, 413, 422]), message in "(image |x |request too large ){0,2}",
        ) {
            images.sort_unstable();
            let refusal = failure("INVALID_REQUEST", Some(status), &message);
            let mut rungs = 0;
            while let Some(rung) = next(&refusal, Carried { native, images: &images }) {
                rungs += 1;
                prop_assert!(rungs <= 3);
                match rung {
                    Rung::Metadata => {
                        prop_assert!(native > 0);
                        native = 0;
                    }
                    Rung::Images { from } => {
                        let had = images.len();
                        images.retain(|position| *position >= from);
                        prop_assert!(images.len() < had);
                    }
                }
            }
        }
    }
}
