//! How long an allocation takes on a disk that is 90 % full, its free blocks apart from each other:
//! `checkerboard [GROUPS]`. The bound is 20 us at the 99th of 100.

use std::time::{Duration, Instant};

use allocator::{Allocator, Block, Extent, GROUP_BLOCKS, Length, Options, Owner, Want};
use base::{Rng, SeededRng, Tick};

const STEPS: usize = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let groups: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(512), |word| word.parse())?;
    let blocks = groups * u64::from(GROUP_BLOCKS);
    let mut allocator = Allocator::empty(blocks, Options::default());
    for block in (0..blocks).filter(|block| block % 10 != 0) {
        allocator.mark_used(Extent::new(Block(block), 1))?;
    }
    println!(
        "{groups} groups, {} % free",
        allocator.free_blocks() * 100 / blocks
    );
    for (what, wanted, length) in [
        ("a small object of 1 block", 1, Length::Known(1)),
        ("a small object of 16 blocks", 16, Length::Known(16)),
        ("256 blocks of a stream", 256, Length::Open(1 << 20)),
    ] {
        let times = churn(&mut allocator, wanted, length)?;
        let at = |share: usize| times[(times.len() - 1) * share / 1000].as_nanos();
        println!(
            "{what:<28} {:>6} ns median, {:>6} ns p99, {:>6} ns p99.9, {:>8} ns worst",
            at(500),
            at(990),
            at(999),
            at(1000)
        );
    }
    Ok(())
}

/// Allocates and frees anywhere, one for one. The times of the allocations, the shortest first.
fn churn(
    allocator: &mut Allocator,
    blocks: u32,
    length: Length,
) -> Result<Vec<Duration>, Box<dyn std::error::Error>> {
    let (mut rng, mut times) = (SeededRng::new(1), Vec::new());
    let mut taken = Vec::new();
    for step in 0..STEPS {
        let want = Want {
            owner: Owner(rng.below(1000).into()),
            logical: step as u64,
            blocks,
            length,
            goal: None,
        };
        let start = Instant::now();
        let extent = allocator.place(Tick(step as u64), &want)?;
        times.push(start.elapsed());
        taken.push(extent);
        if taken.len() > 10_000 {
            let at = rng.below(taken.len() as u64) as usize;
            allocator.free(taken.swap_remove(at))?;
        }
    }
    for extent in taken {
        allocator.free(extent)?;
    }
    allocator.release_all();
    times.sort();
    Ok(times)
}
