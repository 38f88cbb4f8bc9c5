//! What a session does about a refused request: the next rung of the ladder, and what people are told of it.

use dsh_plugin_api::vocab::Failure;

use super::turn::Turn;
use super::{Session, Update};
use crate::llm::client::Prepared;
use crate::llm::ladder::{self, Rung, Spared};

impl Session {
    /// The next rung after a failed attempt, and the request on it. A rung that would change nothing of what the provider
    /// gets is stepped over: bytes that were refused are not sent again.
    pub(super) fn next_rung(
        &self,
        turn: &Turn<'_>,
        refused: &Prepared,
        spared: Spared,
        failure: &Failure,
    ) -> Option<(Rung, Result<Prepared, Failure>)> {
        let mut rung = ladder::next(failure, refused.carried())?;
        let mut without = spared;
        loop {
            without.add(rung);
            rung = match self.prepare(turn, without) {
                Ok(same) if same.sends_the_same_as(refused) => ladder::next(failure, same.carried())?,
                // A request that can no longer be made is the next attempt's to report.
                request => return Some((rung, request)),
            };
        }
    }

    /// Says that a request was refused, and what the next attempt goes without. `images` are those of the request.
    pub(super) fn report_rung(&self, provider: &str, rung: Rung, images: &[usize], failure: &Failure) {
        let (without, lasting) = match rung {
            Rung::Metadata => {
                ("replay metadata".to_owned(), format!("this session sends {provider} none from here on"))
            }
            Rung::Images { from } => {
                let left_out = images.iter().filter(|position| **position < from).count();
                let older = if left_out < images.len() { "older " } else { "" };
                let plural = if left_out == 1 { "" } else { "s" };
                let lasting = format!("from here on this session sends {provider} a note in place of each");
                (format!("{left_out} {older}image{plural}"), lasting)
            }
        };
        let why = &failure.message;
        self.update(Update::Notice(format!(
            "{provider} refused the request ({why}). Asking once more without {without}; {lasting}."
        )));
    }

    /// Says once what a route refused before this process opened the session.
    pub(super) fn report_remembered(&mut self, provider: &str) {
        if !self.remembered_refusals.remove(provider) {
            return;
        }
        let Spared { metadata, images_from } = self.spared.get(provider).copied().unwrap_or_default();
        if metadata {
            self.update(Update::Notice(format!(
                "{provider} refused this session's replay metadata before; every message goes to {provider} without it"
            )));
        }
        if images_from > 0 {
            self.update(Update::Notice(format!(
                "{provider} refused images of this session before; each image of its first {images_from} messages goes \
                 to {provider} as a note"
            )));
        }
    }
}
