//! The same properties for every common wire.

use dsh_properties::anthropic::Anthropic;
use dsh_properties::bodies::{ANTHROPIC, COMPLETIONS, GOOGLE, MISTRAL, RESPONSES};
use dsh_properties::completions::Completions;
use dsh_properties::google::Google;
use dsh_properties::mistral::Mistral;
use dsh_properties::responses::Responses;

use crate::{adapter, properties};

properties!(completions, Completions, COMPLETIONS);
properties!(responses, Responses, RESPONSES);
properties!(anthropic, Anthropic, ANTHROPIC);
properties!(google, Google, GOOGLE);
properties!(mistral, Mistral, MISTRAL);
