//! Names of tools as the wire takes them: letters, digits, `_` and `-`, at most 64.

use super::hash;

const MAX: usize = 64;
const HASH_LENGTH: usize = 8;

/// True for a name that the wire takes.
pub fn is_legal(name: &str) -> bool {
    (1..=MAX).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// True for a name that also begins with a letter or an underscore, as some wires want it.
pub fn is_legal_word(name: &str) -> bool {
    is_legal(name) && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// The name itself when it is legal, else one that is, the same every time and different for different names.
///
/// This is for calls in the history. A tool with an illegal name is not offered, since the model would call it by a
/// name that the host does not know.
pub fn legal_name(name: &str) -> String {
    if is_legal(name) { name.to_owned() } else { made("", name) }
}

/// [`legal_name`] for a wire on which names begin with a letter or an underscore.
pub fn legal_word(name: &str) -> String {
    if is_legal_word(name) { name.to_owned() } else { made("_", name) }
}

fn made(lead: &str, name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let room = MAX - HASH_LENGTH - 1 - lead.len();
    let stem: String = name.chars().map(legal).take(room).collect();
    format!("{lead}{stem}_{}", hash::word(name, 0, HASH_LENGTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_names_become_legal_and_stay_different() {
        let long = "plugin__a_very_long_name_".repeat(4);
        let names = [long.clone(), format!("{long}1"), "a.b".into(), "a b".into(), String::new(), "é".into()];
        let made: std::collections::BTreeSet<_> = names.iter().map(|name| legal_name(name)).collect();
        assert_eq!(made.len(), names.len());
        assert!(made.iter().all(|name| is_legal(name)), "{made:?}");
        assert_eq!(legal_name("read-file_2"), "read-file_2");
    }

    #[test]
    fn a_word_begins_with_a_letter_or_an_underscore() {
        let names = ["3d", "-x", "_3d", "a.b", "", "é"].map(legal_word);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
        assert!(names.iter().all(|name| is_legal_word(name)), "{names:?}");
        assert!(is_legal_word(&legal_word(&"9".repeat(80))));
        assert_eq!(["_3d", "read-file_2"].map(legal_word), ["_3d", "read-file_2"]);
    }
}
