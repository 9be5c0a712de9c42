//! The shape of a kernel source tree, as numbers: a generator of its entries, pure and seeded.

use base::{Rng, SeededRng};

/// Entries of the kernel tree that the generated one is modelled on: Debian's linux-source-6.1 (6.1.192). Its
/// median file has 3.9 kB, the mean is 16.5 kB.
pub const KERNEL_ENTRIES: u64 = 83_732;

const KERNEL_DIRECTORIES: u64 = 5_097;
const KERNEL_SYMLINKS: u64 = 56;

/// Directories at each depth below the top, per 5,095.
const DIRECTORIES_AT_DEPTH: [u64; 9] = [24, 608, 1505, 1383, 835, 287, 233, 164, 56];

/// (share of files in 1/10,000, bytes a file of that rank has).
const FILE_BYTES: [(u64, u64); 21] = [
    (0, 0),
    (156, 100),
    (625, 302),
    (1250, 557),
    (2500, 1_280),
    (3750, 2_271),
    (5000, 3_874),
    (6250, 6_549),
    (7500, 11_416),
    (8125, 15_900),
    (8750, 23_727),
    (9375, 41_360),
    (9688, 65_344),
    (9844, 96_229),
    (9900, 124_858),
    (9950, 191_202),
    (9980, 402_767),
    (9990, 900_000),
    (9995, 1_700_000),
    (9999, 5_000_000),
    (10_000, 23_944_620),
];

/// (share of directories in 1/10,000, files directly in one of that rank).
const FILES_IN_DIRECTORY: [(u64, u64); 15] = [
    (0, 0),
    (940, 1),
    (2500, 3),
    (3750, 4),
    (5000, 6),
    (6250, 10),
    (7500, 19),
    (8437, 27),
    (9062, 46),
    (9687, 77),
    (9900, 190),
    (9960, 268),
    (9980, 334),
    (9996, 600),
    (10_000, 2_545),
];

/// File name endings and their share in 1/100, the last one for what remains.
const ENDINGS: [(u64, &str); 8] = [
    (43, ".c"),
    (75, ".h"),
    (80, ".rst"),
    (84, ".yaml"),
    (90, ".dts"),
    (94, ".txt"),
    (97, ".S"),
    (100, ".sh"),
];

/// Parts of names.
const WORDS: [&str; 24] = [
    "core", "bus", "clock", "queue", "page", "inode", "super", "probe", "timer", "panel", "codec",
    "route", "table", "frame", "token", "cache", "event", "signal", "device", "string", "packet",
    "module", "region", "driver",
];

/// One thing in the tree. Paths have no leading or trailing slash and start with the top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Directory {
        path: String,
    },
    File {
        path: String,
        bytes: u64,
        executable: bool,
    },
    Symlink {
        path: String,
        target: String,
    },
}

#[derive(Debug, Default)]
struct Directory {
    path: String,
    children: Vec<usize>,
    files: u64,
    symlinks: u64,
}

/// Generates a tree of exactly `entries` entries, at least one, below `top`; depth first.
pub(super) fn generate(seed: u64, entries: u64, top: &str) -> Vec<Entry> {
    let entries = entries.max(1);
    let scaled = |kernel: u64| (kernel * entries).div_ceil(KERNEL_ENTRIES);
    let directories = scaled(KERNEL_DIRECTORIES).min(entries);
    let symlinks = scaled(KERNEL_SYMLINKS).min((entries - directories) / 2);
    let files = entries - directories - symlinks;
    let mut rng = SeededRng::new(seed);
    let mut tree = skeleton(&mut rng, directories, top);
    furnish(&mut rng, &mut tree, files, symlinks);
    let mut sizes = Sizes::new(&mut rng);
    let mut list = Vec::with_capacity(entries as usize);
    list_below(&tree, 0, &mut rng, &mut sizes, &mut list);
    list
}

/// Bytes of the files of each directory of such a tree, in the order of a walk.
pub(crate) fn directory_sizes(seed: u64, entries: u64) -> Vec<Vec<u64>> {
    let mut directories = Vec::new();
    for entry in generate(seed, entries, "top") {
        match (entry, directories.last_mut()) {
            (Entry::Directory { .. }, _) => directories.push(Vec::new()),
            (Entry::File { bytes, .. }, Some(last)) => last.push(bytes),
            _ => {}
        }
    }
    directories
}

/// The directories, level by level; the first is the top.
fn skeleton(rng: &mut SeededRng, directories: u64, top: &str) -> Vec<Directory> {
    let mut tree = vec![Directory {
        path: top.to_string(),
        ..Directory::default()
    }];
    let below_top = directories - 1;
    let all: u64 = DIRECTORIES_AT_DEPTH.iter().sum();
    let (mut weight, mut level) = (0, 0..1);
    for at_depth in DIRECTORIES_AT_DEPTH {
        weight += at_depth;
        let until = 1 + (below_top * weight / all) as usize;
        let parents = level.clone();
        let start = tree.len();
        for number in start..until {
            let parent = parents.start + skewed(rng, parents.len() as u64) as usize;
            let word = WORDS[rng.below(WORDS.len() as u64) as usize];
            let path = format!("{}/{word}{number}", tree[parent].path);
            tree[parent].children.push(number);
            tree.push(Directory {
                path,
                ..Directory::default()
            });
        }
        if tree.len() > start {
            level = start..tree.len();
        }
    }
    tree
}

/// Below `bound`, small numbers much more often: few directories have most subdirectories.
fn skewed(rng: &mut SeededRng, bound: u64) -> u64 {
    let a = rng.below(bound + 1);
    let b = rng.below(bound + 1);
    (a * b * rng.below(bound + 1) / (bound * bound)).min(bound - 1)
}

/// Says how many files and symbolic links each directory has.
fn furnish(rng: &mut SeededRng, tree: &mut [Directory], files: u64, symlinks: u64) {
    for directory in tree.iter_mut() {
        directory.files = at_rank(&FILES_IN_DIRECTORY, rng.below(1 << 32));
    }
    let drawn: u64 = tree.iter().map(|directory| directory.files).sum();
    let mut left = files;
    for directory in tree.iter_mut() {
        directory.files = directory.files * files / drawn.max(1);
        left -= directory.files;
    }
    // What rounding took goes to a stretch of directories, a few files each.
    let mut at = rng.below(tree.len() as u64) as usize;
    while left > 0 {
        let more = left.min(4);
        tree[at].files += more;
        left -= more;
        at = (at + 1) % tree.len();
    }
    for _ in 0..symlinks {
        // A link points to a file beside it. There are at least as many files as links, so that the
        // search ends.
        let mut at = rng.below(tree.len() as u64) as usize;
        while tree[at].files <= tree[at].symlinks {
            at = (at + 1) % tree.len();
        }
        tree[at].symlinks += 1;
    }
}

fn list_below(
    tree: &[Directory],
    at: usize,
    rng: &mut SeededRng,
    sizes: &mut Sizes,
    list: &mut Vec<Entry>,
) {
    let directory = &tree[at];
    list.push(Entry::Directory {
        path: directory.path.clone(),
    });
    let mut names = Vec::with_capacity(directory.files as usize);
    for number in 0..directory.files {
        let name = file_name(rng, number);
        list.push(Entry::File {
            path: format!("{}/{name}", directory.path),
            bytes: sizes.next(),
            executable: name.ends_with(".sh"),
        });
        names.push(name);
    }
    for (number, target) in names
        .into_iter()
        .take(directory.symlinks as usize)
        .enumerate()
    {
        list.push(Entry::Symlink {
            path: format!("{}/link{number}", directory.path),
            target,
        });
    }
    for &child in &directory.children {
        list_below(tree, child, rng, sizes, list);
    }
}

fn file_name(rng: &mut SeededRng, number: u64) -> String {
    if number == 0 {
        return "Makefile".into();
    }
    let mut word = || WORDS[rng.below(WORDS.len() as u64) as usize];
    let (first, second) = (word(), word());
    let share = rng.below(100);
    let ending = ENDINGS.iter().find(|(until, _)| share < *until);
    format!(
        "{first}_{second}{number}{}",
        ending.map_or("", |(_, ending)| ending)
    )
}

/// File sizes whose distribution is right for any number of files: the ranks are spread evenly
/// (multiples of the golden ratio), not drawn.
pub(crate) struct Sizes(u64);

impl Sizes {
    /// From a random rank on.
    pub(crate) fn new(rng: &mut SeededRng) -> Sizes {
        Sizes(rng.next_u64())
    }

    /// Bytes of the next file.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        at_rank(&FILE_BYTES, self.0 >> 32)
    }
}

/// The value at a rank, in 2^-32, of a table of (1/10,000, value), linear between its points.
fn at_rank(table: &[(u64, u64)], rank: u64) -> u64 {
    let scaled = rank * 10_000;
    let next = table
        .iter()
        .position(|(share, _)| share << 32 > scaled)
        .unwrap_or(table.len() - 1);
    let ((low, from), (high, to)) = (table[next - 1], table[next]);
    let along = u128::from(scaled - (low << 32)) * u128::from(to - from);
    from + (along / u128::from((high - low) << 32)) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn path(entry: &Entry) -> &str {
        match entry {
            Entry::Directory { path } | Entry::File { path, .. } | Entry::Symlink { path, .. } => {
                path
            }
        }
    }

    #[test]
    fn has_the_shape_of_the_kernel() {
        let tree = generate(1, KERNEL_ENTRIES, "top");
        assert_eq!(tree.len() as u64, KERNEL_ENTRIES);
        let directories = tree
            .iter()
            .filter(|e| matches!(e, Entry::Directory { .. }))
            .count();
        let links = tree
            .iter()
            .filter(|e| matches!(e, Entry::Symlink { .. }))
            .count();
        assert_eq!((directories, links), (5_097, 56));
        let mut sizes: Vec<u64> = tree
            .iter()
            .filter_map(|entry| match entry {
                Entry::File { bytes, .. } => Some(*bytes),
                _ => None,
            })
            .collect();
        sizes.sort_unstable();
        let median = sizes[sizes.len() / 2];
        let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
        assert!((3_500..5_500).contains(&median), "{median}");
        assert!((14_000..19_000).contains(&mean), "{mean}");
        let depth = tree.iter().map(|e| path(e).matches('/').count()).max();
        assert_eq!(depth, Some(10));
    }

    #[test]
    fn every_size_is_exact_unique_and_whole() {
        for entries in [1, 2, 3, 5, 17, 100, 2_000, 10_000] {
            let tree = generate(5, entries, "top");
            assert_eq!(tree.len() as u64, entries);
            let mut seen = HashSet::new();
            for entry in &tree {
                let path = path(entry);
                assert!(seen.insert(path), "{path} twice");
                if let Some((parent, _)) = path.rsplit_once('/') {
                    assert!(seen.contains(parent), "{path} before its directory");
                }
                if let Entry::Symlink { path, target } = entry {
                    let parent = path.rsplit_once('/').unwrap().0;
                    assert!(seen.contains(&*format!("{parent}/{target}")));
                }
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_tree() {
        assert_eq!(generate(3, 2_000, "t"), generate(3, 2_000, "t"));
        assert_ne!(generate(3, 2_000, "t"), generate(4, 2_000, "t"));
    }

    #[test]
    fn ranks_are_read_from_the_table() {
        assert_eq!(at_rank(&FILE_BYTES, 0), 0);
        assert_eq!(at_rank(&FILE_BYTES, 1 << 31), 3_874);
        assert!(at_rank(&FILE_BYTES, (1 << 32) - 1) > 20_000_000);
    }
}
