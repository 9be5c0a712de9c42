//! A picture of an OST's groups: which space is in use.

use std::ops::Range;
use std::path::Path;

use base::TargetName;
use bench::Bitmap;
use storage::TargetDir;
use storage::extents::{GROUP_PARTS, GroupUse, PART_BLOCKS, Usage};

use crate::output::say_lines;

/// A group that was never in use.
const FREE: [u8; GROUP_PARTS] = [0; GROUP_PARTS];
/// The lightest shade that is not that of a free cell.
const SHADE_MIN: u8 = 32;

/// Draws `groups` of the OST in `dir`, as far as there are any up to the last one in use.
pub fn draw(dir: &Path, target: TargetName, groups: Range<u32>) -> Result<(), String> {
    let disk = TargetDir::extents_to_look_at(dir, target)
        .map_err(|error| error.where_one_was_looked_for().to_string())?;
    let usage = Usage::read(&disk, &target.to_string()).map_err(|error| error.to_string())?;
    let svg = bitmap(target, &usage, groups).svg();
    say_lines(svg.map_err(|error| error.to_string())?.trim_end());
    Ok(())
}

fn bitmap(target: TargetName, usage: &Usage, groups: Range<u32>) -> Bitmap {
    let in_use = usage.groups.iter().rposition(Option::is_some);
    let end = in_use.map_or(1, |last| last + 1).min(groups.end as usize);
    let shown = (groups.start as usize).min(end)..end;
    let cells: Vec<u8> = usage.groups[shown.clone()]
        .iter()
        .flat_map(|group| group.as_deref().map_or(FREE, shades))
        .collect();
    let percent = usage.used_blocks() * 100 / usage.blocks.max(1);
    let title = format!(
        "{target}: groups {} to {} of {}, {GROUP_PARTS} cells of 1 MiB each; dark: used, {percent} % of all",
        shown.start,
        shown.end.saturating_sub(1),
        usage.groups.len()
    );
    Bitmap::new("groups", &title, GROUP_PARTS as u32, &cells)
}

/// A cell with any block in use looks so.
fn shades(group: &GroupUse) -> [u8; GROUP_PARTS] {
    let shade = |used: u16| (u32::from(used) * 255 / PART_BLOCKS) as u8;
    group.map(|used| match used {
        0 => 0,
        used => shade(used).max(SHADE_MIN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_up_to_the_last_one_in_use_are_rows() {
        let mut group = [0; GROUP_PARTS];
        (group[0], group[2]) = (256, 1);
        let usage = Usage {
            blocks: 4 << 15,
            groups: vec![None, Some(Box::new(group)), None, None],
        };
        let picture = bitmap(TargetName::ost(3), &usage, 0..1024);
        assert_eq!(picture.columns, 128);
        assert_eq!(
            picture.runs,
            [(0, 128), (255, 1), (0, 1), (32, 1), (0, 125)]
        );
        assert!(
            picture.title.contains("OST3: groups 0 to 1 of 4"),
            "{}",
            picture.title
        );
        // Only the second one, and none.
        assert_eq!(bitmap(TargetName::ost(3), &usage, 1..2).runs[0], (255, 1));
        assert_eq!(bitmap(TargetName::ost(3), &usage, 9..10).runs, []);
    }
}
