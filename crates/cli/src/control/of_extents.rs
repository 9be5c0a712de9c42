//! What a server answers for a target whose objects are extents: where new bytes go, and what was done.

use storage::extents::{ExtentObjects, PreallocTable, Statistics};

/// Free space of groups.
pub const GROUPS: &str = "mb_groups";
/// What it shows.
pub const GROUPS_HELP: &str = "Free space of groups of 128 MiB whose bitmaps are in memory, 256 at \
    most: free blocks, runs of them, the first one, and how many chunks of 1, 2, 4 ... 8192 blocks. \
    The last line is of all groups. Can only be read.";

/// What the allocator did.
pub const STATS: &str = "placement_stats";
/// What it shows.
pub const STATS_HELP: &str = "Runs of blocks taken since the start: in all, behind the bytes before, \
    shorter than wanted; windows taken back for want of space; extents of windows, and of the region \
    of small files. Can only be read.";

/// Where large files go next.
pub const LAST_GROUP: &str = "mb_last_group";
/// What it does.
pub const LAST_GROUP_HELP: &str = "The group that a growing file got its last window in: the search \
    goes on there. Kept over restarts.";

/// How much is reserved for files that grow.
pub const TABLE: &str = "prealloc_table";
/// What it does.
pub const TABLE_HELP: &str = "What is reserved for a file that grows, in blocks of 4 KiB: the smallest \
    size that holds it, or the last. Until the server ends.";

/// `mb_groups`.
pub fn groups(store: &ExtentObjects) -> Vec<String> {
    store.groups_report()
}

/// `placement_stats`.
pub fn stats(store: &ExtentObjects) -> Vec<String> {
    let Statistics {
        runs,
        goal_hits,
        breaks,
        steals,
        from_windows,
        packed,
    } = store.placement();
    vec![format!(
        "runs={runs} goal_hits={goal_hits} breaks={breaks} steals={steals} \
         from_windows={from_windows} packed={packed}"
    )]
}

/// Sets `mb_last_group`.
pub fn set_last_group(store: &ExtentObjects, value: u64) -> Result<(), String> {
    let group = u32::try_from(value).unwrap_or(u32::MAX);
    let set = store.set_last_group(group);
    set.map_err(|groups| format!("{value} is not 0 to {}", groups.saturating_sub(1)))
}

/// Sets `prealloc_table`.
pub fn set_table(store: &ExtentObjects, text: &str) -> Result<(), String> {
    let table: PreallocTable = text.parse().map_err(|error| format!("{error}"))?;
    store.set_prealloc_table(table);
    Ok(())
}

/// The table of a new store.
pub fn usual_table() -> String {
    PreallocTable::default().to_string()
}
