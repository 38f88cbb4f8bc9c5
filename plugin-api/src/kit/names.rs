//! Names of tools as the wire takes them: letters, digits, `_` and `-`, at most 64.

use super::hash;

const MAX: usize = 64;
const HASH_LENGTH: usize = 8;

/// True for a name that the wire takes.
pub fn is_legal(name: &str) -> bool {
    (1..=MAX).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The name itself when it is legal, else one that is, the same every time and different for different names.
///
/// This is for calls in the history. A tool with an illegal name is not offered, since the model would call it by a
/// name that the host does not know.
pub fn legal_name(name: &str) -> String {
    if is_legal(name) {
        return name.to_owned();
    }
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let stem: String = name.chars().map(legal).take(MAX - HASH_LENGTH - 1).collect();
    format!("{stem}_{}", hash::word(name, 0, HASH_LENGTH))
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
}
