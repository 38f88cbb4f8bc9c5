//! A small stable hash, for names and ids that must come out the same in every process and version.

/// FNV-1a with 64 bits.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The hash of a text and an ordinal as `length` digits and lower-case letters.
pub(crate) fn word(text: &str, ordinal: u32, length: usize) -> String {
    const DIGITS: [char; 36] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l',
        'm', 'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z',
    ];
    let mut state = fnv1a(format!("{ordinal}:{text}").as_bytes());
    (0..length)
        .map(|_| {
            // FNV mixes its low bits poorly; each digit is taken from the upper ones of a further step.
            state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            DIGITS[usize::try_from((state >> 32) % 36).unwrap_or(0)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn words_have_their_length_and_differ() {
        let words: std::collections::BTreeSet<_> = (0..2000).map(|n| word("call", n, 9)).collect();
        assert_eq!(words.len(), 2000);
        assert!(words.iter().all(|word| word.len() == 9 && word.chars().all(|c| c.is_ascii_alphanumeric())));
    }
}
