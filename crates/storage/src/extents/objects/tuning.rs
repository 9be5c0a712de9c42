//! What can be seen and set of a store of extents while it is served.

use allocator::{Group, PreallocTable, Statistics};

use super::ExtentObjects;

/// Groups of which a report has lines.
const REPORTED_MAX: usize = 256;

impl ExtentObjects {
    /// `mb_groups`: a line for each group whose bitmap is in memory, 256 at most, and one of all groups.
    pub fn groups_report(&self) -> Vec<String> {
        let mut state = self.state();
        let room = state.room();
        let allocator = state.device.allocator();
        let (groups, blocks) = (allocator.groups(), allocator.blocks());
        let loaded = (0..groups).filter(|group| allocator.is_loaded(Group(*group)));
        let reports = loaded.filter_map(|group| allocator.report(Group(group)));
        let mut lines: Vec<String> = reports
            .take(REPORTED_MAX)
            .map(|report| report.to_string())
            .collect();
        let loaded = state.device.loaded();
        lines.push(format!(
            "groups={groups} loaded={loaded} blocks={blocks} free_blocks={room}"
        ));
        lines
    }

    /// `mb_last_group`: the group that large objects got their last window in.
    pub fn last_group(&self) -> u32 {
        self.state().device.allocator().cursors().stream.0
    }

    /// From now on large objects are put into this group and those behind it. `Err`: there are only so many
    /// groups.
    pub fn set_last_group(&self, group: u32) -> Result<(), u32> {
        let mut state = self.state();
        let allocator = state.device.allocator();
        let set = allocator.set_last_group(Group(group));
        set.map_err(|_| allocator.groups())
    }

    /// `prealloc_table`: sizes of windows, in blocks of 4 KiB.
    pub fn prealloc_table(&self) -> PreallocTable {
        self.state().device.allocator().table().clone()
    }

    /// New windows have these sizes, until the store is opened again.
    pub fn set_prealloc_table(&self, table: PreallocTable) {
        self.state().device.allocator().set_table(table);
    }

    /// What the allocator did since the store was opened.
    pub fn placement(&self) -> Statistics {
        self.state().device.allocator().statistics()
    }
}
