//! What a model of this wire does in its own way, known from its id.

/// A family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Gemini of this generation.
    Gemini {
        /// `2` for 2.5, the first that thinks; `1` for what came before, and for ids that name no generation.
        generation: u32,
        /// Its size.
        size: Size,
    },
    /// Gemma; 4 and later think.
    Gemma,
    /// A model of another vendor behind this wire, with ids of tool calls that have to come back.
    Guest,
    /// Nothing is known.
    Other,
}

/// Sizes that differ in how they think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Pro; it always thinks.
    Pro,
    /// Flash-Lite.
    FlashLite,
    /// Flash, and any other size.
    Flash,
}

impl Family {
    /// The family of a model id, which may stand behind a path such as `models/`.
    pub fn of(id: &str) -> Self {
        let id = id.to_ascii_lowercase();
        let name = id.rsplit('/').next().unwrap_or_default();
        if let Some(rest) = name.strip_prefix("gemini-") {
            let rest = rest.strip_prefix("live-").unwrap_or(rest);
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let generation = match digits.parse() {
                Ok(2) if !rest.starts_with("2.5") => 1,
                Ok(generation) => generation,
                // The aliases without a number point to the newest generation.
                Err(_) if rest.ends_with("-latest") => 3,
                Err(_) => 1,
            };
            let size = match () {
                () if rest.contains("flash-lite") => Size::FlashLite,
                () if rest.contains("pro") => Size::Pro,
                () => Size::Flash,
            };
            return Self::Gemini { generation, size };
        }
        match name {
            _ if name.starts_with("gemma-") || name.starts_with("gemma4") => Self::Gemma,
            _ if name.starts_with("claude-") || name.starts_with("gpt-oss-") => Self::Guest,
            _ => Self::Other,
        }
    }

    /// True for Gemini 3 and later.
    pub const fn is_gemini_3(self) -> bool {
        matches!(self, Self::Gemini { generation: 3.., .. })
    }

    /// True when calls and results carry ids. Older models pair them by order.
    pub const fn takes_call_ids(self) -> bool {
        self.is_gemini_3() || matches!(self, Self::Guest)
    }

    /// True when a function response may hold images. Older Gemini models take them beside it.
    pub const fn takes_images_in_results(self) -> bool {
        self.is_gemini_3() || !matches!(self, Self::Gemini { .. })
    }

    /// True when the first call of each step of the current turn needs a signature.
    pub const fn wants_signed_calls(self) -> bool {
        self.is_gemini_3()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_the_family() {
        let gemini = |generation, size| Family::Gemini { generation, size };
        for (id, family) in [
            ("gemini-3-pro-preview", gemini(3, Size::Pro)),
            ("models/gemini-3.1-flash-lite", gemini(3, Size::FlashLite)),
            ("google/Gemini-3-flash", gemini(3, Size::Flash)),
            ("gemini-2.5-flash", gemini(2, Size::Flash)),
            ("gemini-2.5-pro", gemini(2, Size::Pro)),
            ("gemini-live-2.5-flash", gemini(2, Size::Flash)),
            ("gemini-2.0-flash", gemini(1, Size::Flash)),
            ("gemini-10-x", gemini(10, Size::Flash)),
            ("gemini-flash-latest", gemini(3, Size::Flash)),
            ("gemini-exp-1206", gemini(1, Size::Flash)),
            ("gemma-4-31b-it", Family::Gemma),
            ("claude-sonnet-4-5", Family::Guest),
            ("gpt-oss-120b", Family::Guest),
            ("learnlm-2", Family::Other),
            ("", Family::Other),
        ] {
            assert_eq!(Family::of(id), family, "{id}");
        }
    }

    #[test]
    fn generations_differ_in_ids_images_and_signatures() {
        for (id, ids, images, signatures) in [
            ("gemini-3-pro-preview", true, true, true),
            ("gemini-2.5-flash", false, false, false),
            ("gemini-flash-latest", true, true, true),
            ("gemma-4-31b-it", false, true, false),
            ("claude-sonnet-4-5", true, true, false),
        ] {
            let family = Family::of(id);
            let found = (family.takes_call_ids(), family.takes_images_in_results(), family.wants_signed_calls());
            assert_eq!(found, (ids, images, signatures), "{id}");
        }
    }
}
