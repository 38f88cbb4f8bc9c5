//! Names and the nearest right one.

/// The nearest of some words, when one is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // No word that is meant is so long, and the distance takes the product of both lengths.
    if word.len() > 100 {
        return None;
    }
    let word = word.to_lowercase().replace('-', "_");
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase().replace('-', "_")), candidate))
        .filter(|(distance, candidate)| *distance <= (word.len().max(candidate.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?` where something is near, and then all there are.
pub(super) fn suggest(word: &str, candidates: &[&str], what: &str) -> String {
    if candidates.is_empty() {
        return format!("there are no {what}");
    }
    let all = list(candidates.iter().copied());
    match nearest(word, candidates.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? {what}: {all}"),
        None => format!("{what}: {all}"),
    }
}

/// Words in backquotes, separated by commas.
pub(super) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The name in a credential reference: `NAME`, `$NAME` or `${NAME}`, with capitals, digits and `_`.
///
/// Lower case is refused on purpose: keys of some providers would pass for names otherwise.
pub(super) fn reference(text: &str) -> Option<&str> {
    let name = match text.strip_prefix('$') {
        Some(rest) => rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(rest),
        None => text,
    };
    let mut bytes = name.bytes();
    let first = bytes.next()?;
    let right = (first.is_ascii_uppercase() || first == b'_')
        && bytes.all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    right.then_some(name)
}

/// Whether a value under this key is better not shown.
pub(super) fn may_hold_a_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["credential", "key", "secret", "token", "password", "authorization"].iter().any(|part| key.ends_with(part))
}

/// Whether a text can be an id: letters, digits, `-`, `_` and `.`, first a letter or digit, at most 64.
pub(super) fn is_id(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}
