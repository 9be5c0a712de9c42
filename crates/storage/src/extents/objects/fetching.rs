//! Reading ahead of a frame's reads.

use std::sync::PoisonError;

use allocator::Extent;
use threads::MutexGuard;

use super::ExtentObjects;
use super::ahead::{AHEAD_BYTES_MAX, Ahead, runs_of};
use super::state::State;
use crate::disk::Disk;
use crate::error::Result;
use crate::extents::log::BLOCK_BYTES;
use crate::objects::Wanted;

impl ExtentObjects {
    pub(super) fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what several reads are going to ask for, where they would wait for the disk.
    pub(super) fn fetch(&self, wanted: &[Wanted]) -> Result<()> {
        let (places, io) = {
            let mut state = self.state();
            (self.places_of(&mut state, wanted)?, state.begin_read())
        };
        self.note_together(wanted.iter().map(|wanted| wanted.id), &places);
        let read = self.fetch_runs(&runs_of(places));
        self.state().end_read(io);
        self.read_ended.notify_all();
        read
    }

    /// Where the first of these bytes are, as many as are kept.
    fn places_of(&self, state: &mut State, wanted: &[Wanted]) -> Result<Vec<Extent>> {
        let (mut places, mut bytes) = (Vec::new(), 0);
        for Wanted { id, offset, len } in wanted {
            let Some((_, sources)) = self.sources(state, *id, *offset, *len)? else {
                continue;
            };
            for source in sources {
                bytes += u64::from(source.place.blocks) * BLOCK_BYTES;
                if bytes > AHEAD_BYTES_MAX as u64 / 2 {
                    return Ok(places);
                }
                places.push(source.place);
            }
        }
        Ok(places)
    }

    fn fetch_runs(&self, runs: &[Extent]) -> Result<()> {
        for run in runs {
            let offset = self.geometry.data_offset(run.start);
            let len = u64::from(run.blocks) * BLOCK_BYTES;
            if !self.disk.is_cold(offset, len) {
                continue;
            }
            let mut bytes = vec![0; len as usize];
            self.disk.read(offset, &mut bytes)?;
            self.ahead().put(run.start, bytes.into());
        }
        Ok(())
    }
}
