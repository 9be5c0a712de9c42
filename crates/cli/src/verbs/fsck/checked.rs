//! What a check found.

use serde::Serialize;

/// What was found in one target.
#[derive(Serialize)]
pub(super) struct Checked {
    pub target: String,
    pub mended: Vec<String>,
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

impl Checked {
    pub fn left(&self) -> usize {
        self.errors.len() + self.warnings.len()
    }

    pub fn tell_left(&mut self, is_warning: bool, line: String) {
        match is_warning {
            true => self.warnings.push(line),
            false => self.errors.push(line),
        }
    }
}
