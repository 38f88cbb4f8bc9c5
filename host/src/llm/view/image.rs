//! One image: sent as it is, put into the form that providers take, or replaced by a note.
//!
//! Providers refuse the whole request for one image whose declared type is not that of its bytes, or whose base64 has
//! line breaks or a `data:` prefix. Both come from tools and other clients, and stay in the history for good.

use std::borrow::Cow;

use dsh_plugin_api::vocab::Image;

use super::is_blank;

/// The note that stands in for an image that the provider does not take.
pub(super) const REFUSED_IMAGE: &str = "[image left out: the provider refused a request with it]";

/// How base64 of each type begins. The types are those that every provider with images takes.
const BEGINNINGS: [(&str, &str); 4] =
    [("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];

/// What is sent of an image, and whether that is a change; a note where it cannot be sent.
pub(super) fn sendable(image: Image) -> Result<(Image, bool), String> {
    let (mime_type, data) = match image {
        Image::Data { mime_type, data } => (mime_type, data),
        Image::Attachment(attachment) => {
            return Err(format!("[image left out: the attachment {} is not at hand]", attachment.get()));
        }
    };
    let (named, text) = without_prefix(&data);
    if is_blank(text) {
        return Err("[image left out: it has no data]".to_owned());
    }
    let Some(text) = standard(text) else {
        return Err("[image left out: its data is not base64]".to_owned());
    };
    let actual = type_of(&text).or(named).unwrap_or(&mime_type);
    if !actual.starts_with("image/") {
        return Err(format!("[image left out: its type is {actual:?}]"));
    }
    if *actual == *mime_type && *text == *data {
        return Ok((Image::Data { mime_type, data }, false));
    }
    Ok((Image::Data { mime_type: actual.to_owned(), data: text.into_owned() }, true))
}

/// The type and the base64 of a `data:` URL; the text itself where it is none.
fn without_prefix(data: &str) -> (Option<&str>, &str) {
    let url = data.trim_start().strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match url {
        Some((head, text)) => (head.split(';').next().filter(|named| !named.is_empty()), text),
        None => (None, data),
    }
}

/// Base64 in the standard alphabet without white space; none when it has other characters.
fn standard(text: &str) -> Option<Cow<'_, str>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits = text.trim_end_matches('=');
    if digits.bytes().all(is_plain) {
        return Some(Cow::Borrowed(text));
    }
    let standard: String = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .map(|c| match c {
            '-' => '+',
            '_' => '/',
            c => c,
        })
        .collect();
    standard.trim_end_matches('=').bytes().all(is_plain).then_some(Cow::Owned(standard))
}

/// The type that the first bytes show.
fn type_of(text: &str) -> Option<&'static str> {
    let (beginning, mime_type) = BEGINNINGS.into_iter().find(|(beginning, _)| text.starts_with(beginning))?;
    // RIFF holds more than WebP: the bytes from 9 to 11 are `EBP`.
    (beginning != "UklGR" || text.get(12..16) == Some("RUJQ")).then_some(mime_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(mime_type: &str, data: &str) -> Result<(String, String, bool), String> {
        match sendable(Image::Data { mime_type: mime_type.to_owned(), data: data.to_owned() })? {
            (Image::Data { mime_type, data }, changed) => Ok((mime_type, data, changed)),
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_image_is_sent_as_providers_take_it() {
        for (mime_type, data, expected_type, expected, changed) in [
            ("image/png", "iVBORw0KGgoA", "image/png", "iVBORw0KGgoA", false),
            ("image/bmp", "Qk0=", "image/bmp", "Qk0=", false),
            ("image/png", "AAAA", "image/png", "AAAA", false),
            ("image/jpeg", "iVBORw0KGgoA", "image/png", "iVBORw0KGgoA", true),
            ("image/jpg", "/9j/4AAQ", "image/jpeg", "/9j/4AAQ", true),
            ("IMAGE/GIF", "R0lGODlh", "image/gif", "R0lGODlh", true),
            ("image/png", "UklGRiQAAABXRUJQ", "image/webp", "UklGRiQAAABXRUJQ", true),
            ("image/png", "UklGRiQAAABXQVZF", "image/png", "UklGRiQAAABXQVZF", false),
            ("application/octet-stream", "/9j/4AAQ", "image/jpeg", "/9j/4AAQ", true),
            ("image/png", "iVBORw0K\nGgoA\r\n", "image/png", "iVBORw0KGgoA", true),
            ("image/png", "data:image/png;base64,iVBORw0KGgoA", "image/png", "iVBORw0KGgoA", true),
            ("", " data:image/bmp;q=1;base64,Qk0=", "image/bmp", "Qk0=", true),
            ("image/bmp", "data:;base64,Qk0_", "image/bmp", "Qk0/", true),
            ("image/bmp", "Q-_=", "image/bmp", "Q+/=", true),
        ] {
            let expected = (expected_type.to_owned(), expected.to_owned(), changed);
            let (mime_type, data, changed) = sent(mime_type, data).unwrap();
            assert_eq!(sent(&mime_type, &data).unwrap(), (mime_type.clone(), data.clone(), false), "twice: {data}");
            assert_eq!((mime_type, data, changed), expected);
        }
    }

    #[test]
    fn what_cannot_be_sent_is_a_note_that_says_why() {
        for (mime_type, data, why) in [
            ("image/png", " \n", "no data"),
            ("image/png", "data:image/png;base64,", "no data"),
            ("image/png", "not base64!", "not base64"),
            ("image/png", "AA=A", "not base64"),
            ("text/plain", "AAAA", "\"text/plain\""),
            ("image/png", "data:text/html;base64,AAAA", "\"text/html\""),
        ] {
            let note = sent(mime_type, data).unwrap_err();
            assert!(note.contains(why), "{note} for {data}");
        }
    }
}
