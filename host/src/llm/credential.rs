//! Credentials: from a reference in the manifest to a header value, at the moment a request goes out.
//!
//! A reference names an environment variable. Its value is read for each request and never stored; [`Secret`] cannot
//! be printed, and no message of this module contains a part of one.

use std::ffi::OsString;

use dsh_plugin_api::vocab::{Failure, FailureCode};
use reqwest::header::HeaderValue;

/// The value of a credential. It has no `Debug` and no `Display`.
pub struct Secret(String);

impl Secret {
    /// A header value of `prefix` and the secret, marked so that the HTTP stack neither prints nor indexes it. `None`
    /// when the prefix cannot stand in a header.
    #[must_use]
    pub fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// `text` with `<credential NAME>` wherever it quotes the secret. Providers quote what they refuse. A value of
    /// less than 8 bytes is a placeholder such as `none`, and is left where it stands.
    #[must_use]
    pub fn redact(&self, text: &str, reference: &str) -> String {
        if self.0.len() < 8 {
            return text.to_owned();
        }
        text.replace(&self.0, &format!("<credential {reference}>"))
    }
}

/// Name of the environment variable of a reference: `NAME`, `$NAME` or `${NAME}`. `None` when it is no such name, as
/// when somebody wrote the key itself into the manifest.
#[must_use]
pub fn variable(reference: &str) -> Option<&str> {
    let name = reference.strip_prefix('$').unwrap_or(reference);
    let name = name.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(name);
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (name.chars().all(legal) && name.starts_with(|c: char| !c.is_ascii_digit())).then_some(name)
}

/// True when a reference has a value. The value is not checked.
#[must_use]
pub fn is_set(reference: &str) -> bool {
    variable(reference).and_then(std::env::var_os).is_some_and(|value| !value.to_string_lossy().trim().is_empty())
}

/// The secret of a reference; `route` is the provider route that wants it.
///
/// # Errors
///
/// `MISSING_CREDENTIAL` names the reference and how to set it. `INVALID_CREDENTIAL` says where the value, or the
/// reference itself, is not usable.
pub fn resolve(reference: &str, route: &str) -> Result<Secret, Failure> {
    read(reference, route, |name| std::env::var_os(name))
}

fn read(reference: &str, route: &str, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Secret, Failure> {
    let invalid = |message: String| Failure::new(FailureCode::InvalidCredential, message);
    let name = variable(reference).ok_or_else(|| {
        // The text is not repeated: it may be the key.
        invalid(format!(
            "the credential of route `{route}` is not the name of an environment variable; \
             the manifest holds such a name, never the key itself"
        ))
    })?;
    let missing = |state: &str| {
        let message = format!(
            "no credential for route `{route}`: the environment variable {name} is {state}; \
             set it with `export {name}=...` and try again"
        );
        Failure::new(FailureCode::MissingCredential, message)
    };
    let value = lookup(name).ok_or_else(|| missing("not set"))?;
    let value = value.into_string().map_err(|_| {
        invalid(format!("the credential {name} of route `{route}` is not text; set the variable again"))
    })?;
    // Files and shells leave a line end behind; no key begins or ends with white space.
    let value = value.trim();
    if value.is_empty() {
        return Err(missing("empty"));
    }
    if let Some(at) = value.chars().position(|c| !(' '..='~').contains(&c)) {
        return Err(invalid(format!(
            "the credential {name} of route `{route}` cannot be sent: its character {} is not printable ASCII; \
             copy the key again and set the variable anew",
            at + 1
        )));
    }
    Ok(Secret(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_value(value: &str) -> Result<Secret, Failure> {
        read("KEY", "local", |name| (name == "KEY").then(|| value.into()))
    }

    #[test]
    fn white_space_around_a_key_is_not_part_of_it() {
        let secret = read_value("  sk-1 2\r\n").ok().unwrap();
        assert_eq!(secret.header("Bearer ").unwrap(), "Bearer sk-1 2");
        assert!(secret.header("").unwrap().is_sensitive());
    }

    #[test]
    fn a_missing_or_empty_key_says_how_to_set_it_and_who_wants_it() {
        for failure in [read("KEY", "local", |_| None).err(), read_value("\n").err()] {
            let failure = failure.unwrap();
            assert_eq!(failure.code, FailureCode::MissingCredential);
            for part in ["`local`", "KEY", "`export KEY=...`"] {
                assert!(failure.message.contains(part), "{part} in {}", failure.message);
            }
        }
    }

    #[test]
    fn a_key_that_cannot_stand_in_a_header_is_refused_without_showing_it() {
        for value in ["sk-a\nb-secret", "sk-\u{201c}secret", "sk-\u{7f}secret", "sk-\0secret"] {
            let failure = read_value(value).err().unwrap();
            assert_eq!(failure.code, FailureCode::InvalidCredential);
            assert!(!failure.message.contains("secret") && !failure.message.contains("sk-"), "{}", failure.message);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let value = |_: &str| Some(OsString::from_vec(vec![b's', 0xff]));
        assert_eq!(read("KEY", "local", value).err().unwrap().code, FailureCode::InvalidCredential);
    }

    #[test]
    fn a_key_written_in_place_of_its_name_is_refused_without_showing_it() {
        let failure = resolve("sk-live-123", "local").err().unwrap();
        assert_eq!(failure.code, FailureCode::InvalidCredential);
        assert!(!failure.message.contains("123"), "{}", failure.message);
    }

    #[test]
    fn a_reference_may_be_spelled_as_in_a_shell() {
        for (reference, name) in [
            ("A_KEY", Some("A_KEY")),
            ("$A_KEY", Some("A_KEY")),
            ("${A_KEY}", Some("A_KEY")),
            ("", None),
            ("$", None),
            ("1KEY", None),
            ("A-KEY", None),
            ("A=KEY", None),
        ] {
            assert_eq!(variable(reference), name, "{reference}");
        }
    }

    #[test]
    fn a_quoted_secret_is_replaced_by_its_name() {
        let secret = read_value("sk-12345").ok().unwrap();
        assert_eq!(secret.redact("Incorrect key: sk-12345.", "KEY"), "Incorrect key: <credential KEY>.");
        assert_eq!(read_value("none").ok().unwrap().redact("none was given", "KEY"), "none was given");
    }
}
