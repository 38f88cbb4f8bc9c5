//! The event stream format read the slow and plain way, as an oracle: the whole text at once, line by line, in the
//! steps of the WHATWG HTML standard, sections 9.2.5 "Parsing an event stream" and 9.2.6 "Interpreting an event
//! stream".

/// Name and data of an event.
pub type Event = (String, String);

/// The events of a body, and the one that its end left without a blank line, if that one has data. The standard
/// discards the latter (9.2.6: "Once the end of the file is reached, any pending data must be discarded").
#[must_use]
pub fn events(body: &[u8]) -> (Vec<Event>, Option<Event>) {
    // 9.2.5: "Streams must be decoded using the UTF-8 decode algorithm", which strips one byte-order mark and replaces
    // what is no UTF-8.
    let text = String::from_utf8_lossy(body);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // The three line ends of the format, as one.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut dispatched = Vec::new();
    let mut name = String::new();
    let mut data: Option<String> = None;
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What follows the last line end is a line only when there is something.
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    for line in lines {
        if line.is_empty() {
            let event = (std::mem::take(&mut name), data.take());
            if let (name, Some(data)) = event {
                dispatched.push((name, data));
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut name),
            "data" => {
                data = Some(match data {
                    None => value.to_owned(),
                    Some(before) => before + "\n" + value,
                });
            }
            _ => {}
        }
    }
    (dispatched, data.map(|data| (name, data)))
}

/// The body as one JSON document, without what may stand around it. None for any other body.
#[must_use]
pub fn document(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let document = text.trim_matches(|c: char| c == '\u{feff}' || c.is_ascii_whitespace());
    let is_one = document.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(document).is_ok();
    is_one.then(|| document.to_owned())
}

/// JSON text with the `\u` escapes of ASCII characters resolved, since a name may be written with them, and without the
/// backslashes that escape nothing, since a reader may overlook them.
#[must_use]
pub fn unescaped(json: &str) -> String {
    let mut out = String::new();
    let mut rest = json.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(escaped) = rest.next() else { break };
        let unit = rest.as_str().get(..4).filter(|_| escaped == 'u').and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match unit.and_then(char::from_u32) {
            Some(c) if c.is_ascii() => {
                out.push(c);
                rest.nth(3);
            }
            _ if "\"\\/bfnrtu".contains(escaped) => out.extend(['\\', escaped]),
            _ => out.push(escaped),
        }
    }
    out
}
