//! What had to be changed in the history of one request, collected as it is encoded.
//!
//! Every wire changes the same things for the same reasons: an image that the model cannot see, a name or an id that
//! the server would refuse, arguments that are no object. Here each is told under its one name, and once per message.

use super::notes::IMAGE_UNAVAILABLE;
use super::request;
use crate::vocab::{Image, Repair};

/// The repairs of one request.
#[derive(Debug, Default)]
pub struct Repairs(Vec<Repair>);

/// An image that goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Picture<'a> {
    /// For example `image/png`.
    pub mime_type: &'a str,
    /// Base64.
    pub data: &'a str,
}

impl Picture<'_> {
    /// `data:TYPE;base64,DATA`
    #[must_use]
    pub fn data_uri(&self) -> String {
        let Self { mime_type, data } = self;
        format!("data:{mime_type};base64,{data}")
    }
}

impl Repairs {
    /// Nothing changed yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a change of the message at this 0-based position, of a kind that `docs/never-stuck.md` lists. The same
    /// kind is told once of a message.
    pub fn add(&mut self, message: usize, kind: &str) {
        let repair = Repair { message, kind: kind.to_owned() };
        if !self.0.contains(&repair) {
            self.0.push(repair);
        }
    }

    /// An image as it goes out to a model that sees, or the text that stands in its place, which is a repair.
    ///
    /// `omitted` is that text for a model that does not see.
    ///
    /// # Errors
    ///
    /// The text: `omitted`, or [`IMAGE_UNAVAILABLE`] of an attachment that nobody has resolved.
    pub fn image<'a>(
        &mut self,
        message: usize,
        image: &'a Image,
        sees: bool,
        omitted: &'static str,
    ) -> Result<Picture<'a>, &'static str> {
        match image {
            Image::Data { mime_type, data } if sees => Ok(Picture { mime_type, data }),
            Image::Attachment(_) if sees => Err(self.image_omitted(message, IMAGE_UNAVAILABLE)),
            Image::Data { .. } | Image::Attachment(_) => Err(self.image_omitted(message, omitted)),
        }
    }

    /// Tells that an image was left out, and gives back the text that stands in its place.
    pub fn image_omitted(&mut self, message: usize, note: &'static str) -> &'static str {
        self.add(message, "image-omitted");
        note
    }

    /// Tells it where the name of a tool that was called is not what goes out.
    pub fn tool_name(&mut self, message: usize, original: &str, sent: &str) {
        if sent != original {
            self.add(message, "tool-name-rewritten");
        }
    }

    /// Tells it where the id of a call is not what goes out.
    pub fn call_id(&mut self, message: usize, original: &str, sent: &str) {
        if sent != original {
            self.add(message, "call-id-rewritten");
        }
    }

    /// The arguments of a call as the JSON text of an object (see [`request::arguments`]); of what is no object `{}`,
    /// which is a repair.
    pub fn arguments(&mut self, message: usize, text: &str) -> String {
        request::arguments(text).unwrap_or_else(|| {
            self.add(message, "arguments-emptied");
            "{}".to_owned()
        })
    }

    /// All of them, in the order in which they were made.
    #[must_use]
    pub fn into_vec(self) -> Vec<Repair> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::raw;
    use crate::kit::notes::IMAGE_OMITTED;

    fn kinds(repairs: Repairs) -> Vec<(usize, String)> {
        repairs.into_vec().into_iter().map(|repair| (repair.message, repair.kind)).collect()
    }

    #[test]
    fn a_kind_is_told_once_of_a_message() {
        let mut repairs = Repairs::new();
        for (message, kind) in [(0, "a"), (0, "b"), (0, "a"), (1, "a")] {
            repairs.add(message, kind);
        }
        assert_eq!(kinds(repairs), [(0, "a".into()), (0, "b".into()), (1, "a".into())]);
    }

    #[test]
    fn an_image_goes_out_or_a_note_says_why_not() {
        let data = Image::Data { mime_type: "image/png".into(), data: "AA==".into() };
        let attachment = Image::Attachment(raw(&"a.png"));
        let picture = Picture { mime_type: "image/png", data: "AA==" };
        assert_eq!(picture.data_uri(), "data:image/png;base64,AA==");
        for (image, sees, expected) in [
            (&data, true, Ok(picture)),
            (&data, false, Err(IMAGE_OMITTED)),
            (&attachment, true, Err(IMAGE_UNAVAILABLE)),
            (&attachment, false, Err(IMAGE_OMITTED)),
        ] {
            let mut repairs = Repairs::new();
            assert_eq!(repairs.image(3, image, sees, IMAGE_OMITTED), expected);
            let told = kinds(repairs);
            assert_eq!(told, if expected.is_ok() { vec![] } else { vec![(3, "image-omitted".to_owned())] });
        }
    }

    #[test]
    fn a_call_is_told_of_where_it_goes_out_otherwise() {
        let mut repairs = Repairs::new();
        repairs.tool_name(0, "read", "read");
        repairs.call_id(0, "c", "c");
        assert_eq!(repairs.arguments(0, r#"{"a":1}"#), r#"{"a":1}"#);
        assert_eq!(repairs.arguments(0, " "), "{}");
        assert_eq!(kinds(repairs), []);
        let mut repairs = Repairs::new();
        repairs.tool_name(0, "a.b", "a_b");
        repairs.call_id(0, "c:1", "c1");
        assert_eq!(repairs.arguments(0, "[1]"), "{}");
        let all = ["tool-name-rewritten", "call-id-rewritten", "arguments-emptied"];
        assert_eq!(kinds(repairs), all.map(|kind| (0, kind.to_owned())));
    }
}
