//! What a subsystem of the target wants done. It is a step machine beside the store: events go in, effects
//! come out, and the core alone carries them out.

use base::Tick;
use wire::ost::Watermark;

use crate::event::{Halted, Output};
use crate::mutation::Mutation;

/// One thing to be done, after those before it.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every effect is the large one, an answer"
)]
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// These changes are to be stored, as one.
    Change(Vec<Mutation>),
    /// This is to be said.
    Say(Output),
    /// The target cannot go on.
    Halt(Halted),
}

/// How things stand, for subsystems that speak with OSTs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub now: Tick,
    /// How far the target has come, which goes along with each message to an OST.
    pub watermark: Watermark,
}
