//! The preallocation table: how much is reserved for an object that grows, by its size.

use std::fmt;
use std::str::FromStr;

use crate::places::GROUP_BLOCKS;

/// Sizes of a table. Beyond: refused.
const SIZES_MAX: usize = 64;

/// Sizes of windows in blocks, ascending. An object gets the smallest that holds it, or the largest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreallocTable(Vec<u32>);

/// A text is no table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableError {
    /// It has no size.
    Empty,
    /// It has more than 64 sizes.
    TooMany,
    /// A word is no number of blocks that a group has.
    NotBlocks(String),
    /// Sizes do not ascend.
    NotAscending,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::Empty => f.write_str("the table is empty; give sizes in blocks"),
            TableError::TooMany => write!(f, "more than {SIZES_MAX} sizes"),
            TableError::NotBlocks(word) => {
                write!(
                    f,
                    "{word:?} is not a number of blocks from 1 to {GROUP_BLOCKS}"
                )
            }
            TableError::NotAscending => f.write_str("the sizes do not ascend"),
        }
    }
}

impl std::error::Error for TableError {}

impl Default for PreallocTable {
    /// 256 KiB to 16 MiB.
    fn default() -> PreallocTable {
        PreallocTable((6..=12).map(|order| 1 << order).collect())
    }
}

impl FromStr for PreallocTable {
    type Err = TableError;

    fn from_str(text: &str) -> Result<PreallocTable, TableError> {
        let mut sizes = Vec::new();
        for word in text.split_whitespace() {
            let size = word
                .parse()
                .ok()
                .filter(|size| (1..=GROUP_BLOCKS).contains(size));
            let size = size.ok_or_else(|| TableError::NotBlocks(word.to_owned()))?;
            if sizes.last().is_some_and(|last| *last >= size) {
                return Err(TableError::NotAscending);
            }
            if sizes.len() == SIZES_MAX {
                return Err(TableError::TooMany);
            }
            sizes.push(size);
        }
        match sizes.is_empty() {
            true => Err(TableError::Empty),
            false => Ok(PreallocTable(sizes)),
        }
    }
}

impl fmt::Display for PreallocTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&words.join(" "))
    }
}

impl PreallocTable {
    /// The window of an object of `blocks` blocks.
    pub fn window(&self, blocks: u64) -> u32 {
        let holds = self.0.iter().find(|size| u64::from(**size) >= blocks);
        let largest = self.0.last().copied().unwrap_or(1);
        holds.copied().unwrap_or(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_window_that_holds_an_object_is_its_own() {
        let table: PreallocTable = "4 8 256".parse().unwrap();
        let windows = [1, 4, 5, 9, 256, 257, 1 << 40].map(|blocks| table.window(blocks));
        assert_eq!(windows, [4, 4, 8, 256, 256, 256, 256]);
        assert_eq!(table.to_string(), "4 8 256");
        assert_eq!(
            PreallocTable::default().to_string(),
            "64 128 256 512 1024 2048 4096"
        );
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_reason() {
        let refused = |text: &str| text.parse::<PreallocTable>().unwrap_err();
        assert_eq!(refused(" "), TableError::Empty);
        assert_eq!(refused("8 8"), TableError::NotAscending);
        for word in ["0", "32769", "-1", "1M"] {
            assert_eq!(refused(word), TableError::NotBlocks(word.to_owned()));
        }
        let many: Vec<String> = (1..=65).map(|n| n.to_string()).collect();
        assert_eq!(refused(&many.join(" ")), TableError::TooMany);
    }
}
