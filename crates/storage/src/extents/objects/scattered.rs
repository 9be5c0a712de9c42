//! Sets of objects that one frame read together, and that lay apart.

use std::collections::VecDeque;

use crate::objects::ObjectId;

/// Sets of objects that are remembered. Beyond: the oldest is forgotten.
const SETS_MAX: usize = 64;
/// Objects of a set. Beyond: it is not remembered.
const OBJECTS_MAX: usize = 1024;

/// Objects that were read together, and lay apart then.
#[derive(Debug, Default)]
pub(super) struct Scattered {
    sets: VecDeque<Vec<ObjectId>>,
}

impl Scattered {
    /// Remembers them.
    pub(super) fn add(&mut self, objects: Vec<ObjectId>) {
        if objects.len() > OBJECTS_MAX || self.sets.contains(&objects) {
            return;
        }
        if self.sets.len() == SETS_MAX {
            self.sets.pop_front();
        }
        self.sets.push_back(objects);
    }

    /// Those that were remembered first.
    pub(super) fn take(&mut self) -> Option<Vec<ObjectId>> {
        self.sets.pop_front()
    }
}
