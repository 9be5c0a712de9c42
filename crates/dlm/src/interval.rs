//! Byte ranges of many holders, found by overlap and by neighbourhood in O(log n): a treap ordered by start.

use base::{ByteRange, ClientId};

/// A set of `(range, holder, slot)`; the slot tells equal ranges apart.
#[derive(Debug, Default)]
pub(crate) struct IntervalTree {
    root: Tree,
}

type Tree = Option<Box<Node>>;

#[derive(Debug)]
struct Node {
    range: ByteRange,
    client: ClientId,
    slot: u32,
    priority: u64,
    reach: Reach,
    left: Tree,
    right: Tree,
}

/// How far a subtree's ranges reach, with and without the holder that reaches farthest. So a search that must
/// ignore one holder's own ranges skips whole subtrees of them.
#[derive(Debug, Clone, Copy)]
struct Reach {
    /// The largest end, and who holds it.
    end: u64,
    client: ClientId,
    /// The largest end of anyone else; zero where there is nobody else (no range ends at zero).
    others: u64,
}

impl Reach {
    fn joined(self, other: Reach) -> Reach {
        let (far, near) = if self.end >= other.end {
            (self, other)
        } else {
            (other, self)
        };
        let others = match far.client == near.client {
            true => far.others.max(near.others),
            false => far.others.max(near.end),
        };
        Reach { others, ..far }
    }

    /// The largest end held by anyone but `except`; zero where there is nobody.
    fn without(self, except: Option<ClientId>) -> u64 {
        if except == Some(self.client) {
            self.others
        } else {
            self.end
        }
    }
}

impl Node {
    fn key(&self) -> (u64, u32) {
        (self.range.start, self.slot)
    }

    fn refresh(&mut self) {
        let own = Reach {
            end: self.range.end,
            client: self.client,
            others: 0,
        };
        let children = [&self.left, &self.right].into_iter().flatten();
        self.reach = children.fold(own, |reach, child| reach.joined(child.reach));
    }
}

impl IntervalTree {
    /// Adds a range that is not empty.
    pub fn insert(&mut self, range: ByteRange, client: ClientId, slot: u32) {
        let (left, right) = split(self.root.take(), (range.start, slot));
        let mut node = Box::new(Node {
            range,
            client,
            slot,
            priority: scatter(slot),
            reach: Reach {
                end: range.end,
                client,
                others: 0,
            },
            left: None,
            right: None,
        });
        node.refresh();
        self.root = merge(merge(left, Some(node)), right);
    }

    /// Takes out what [`IntervalTree::insert`] added.
    pub fn remove(&mut self, range: ByteRange, slot: u32) {
        let (left, rest) = split(self.root.take(), (range.start, slot));
        let (_gone, right) = split(rest, (range.start, slot.saturating_add(1)));
        self.root = merge(left, right);
    }

    /// Visits the ranges of others than `except` that overlap `range`, by start, until `visit`
    /// says no; false if it did.
    pub fn overlapping(
        &self,
        range: ByteRange,
        except: Option<ClientId>,
        visit: &mut dyn FnMut(u32) -> bool,
    ) -> bool {
        overlapping(&self.root, range, except, visit)
    }

    /// The largest end among ranges of others than `except` that start before `start`.
    pub fn last_end_before(&self, start: u64, except: Option<ClientId>) -> u64 {
        let (mut tree, mut best) = (&self.root, 0);
        while let Some(node) = tree {
            if node.range.start < start {
                if Some(node.client) != except {
                    best = best.max(node.range.end);
                }
                let left = node
                    .left
                    .as_ref()
                    .map_or(0, |left| left.reach.without(except));
                best = best.max(left);
                tree = &node.right;
            } else {
                tree = &node.left;
            }
        }
        best
    }

    /// The smallest start at or after `end` among ranges of others than `except`.
    pub fn first_start_from(&self, end: u64, except: Option<ClientId>) -> Option<u64> {
        first_start_from(&self.root, end, except)
    }
}

fn first_start_from(tree: &Tree, end: u64, except: Option<ClientId>) -> Option<u64> {
    let node = tree
        .as_ref()
        .filter(|node| node.reach.without(except) > 0)?;
    if node.range.start < end {
        return first_start_from(&node.right, end, except);
    }
    let own = || (Some(node.client) != except).then_some(node.range.start);
    first_start_from(&node.left, end, except)
        .or_else(own)
        .or_else(|| first_start_from(&node.right, end, except))
}

fn overlapping(
    tree: &Tree,
    range: ByteRange,
    except: Option<ClientId>,
    visit: &mut dyn FnMut(u32) -> bool,
) -> bool {
    let Some(node) = tree
        .as_ref()
        .filter(|node| node.reach.without(except) > range.start)
    else {
        return true;
    };
    if !overlapping(&node.left, range, except, visit) {
        return false;
    }
    if node.range.start >= range.end {
        return true;
    }
    let hit = node.range.overlaps(range) && Some(node.client) != except;
    (!hit || visit(node.slot)) && overlapping(&node.right, range, except, visit)
}

/// Those below `key`, and the rest.
fn split(tree: Tree, key: (u64, u32)) -> (Tree, Tree) {
    let Some(mut node) = tree else {
        return (None, None);
    };
    if node.key() < key {
        let (left, right) = split(node.right.take(), key);
        node.right = left;
        node.refresh();
        (Some(node), right)
    } else {
        let (left, right) = split(node.left.take(), key);
        node.left = right;
        node.refresh();
        (left, Some(node))
    }
}

/// One tree of two, where every key of `left` is below every key of `right`.
fn merge(left: Tree, right: Tree) -> Tree {
    let (mut a, mut b) = match (left, right) {
        (None, tree) | (tree, None) => return tree,
        (Some(a), Some(b)) => (a, b),
    };
    if a.priority >= b.priority {
        a.right = merge(a.right.take(), Some(b));
        a.refresh();
        Some(a)
    } else {
        b.left = merge(Some(a), b.left.take());
        b.refresh();
        Some(b)
    }
}

/// A priority from the slot: the same on every run, in no relation to any order of insertion.
fn scatter(slot: u32) -> u64 {
    let mut z = u64::from(slot).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use base::{Rng, SeededRng};

    use super::*;

    type Naive = Vec<(ByteRange, ClientId, u32)>;

    fn check(tree: &IntervalTree, naive: &Naive, rng: &mut SeededRng) {
        let start = rng.below(1000);
        let range = ByteRange::new(start, start + 1 + rng.below(100));
        let except = (rng.below(3) > 0).then(|| ClientId(rng.below(4)));
        let others = || {
            naive
                .iter()
                .filter(|(_, client, _)| Some(*client) != except)
        };

        let mut found = Vec::new();
        tree.overlapping(range, except, &mut |slot| {
            found.push(slot);
            true
        });
        let mut expected: Vec<_> = others().filter(|(held, ..)| held.overlaps(range)).collect();
        expected.sort_by_key(|(held, _, slot)| (held.start, *slot));
        assert_eq!(
            found,
            expected.iter().map(|(.., slot)| *slot).collect::<Vec<_>>()
        );

        let before = others()
            .filter(|(held, ..)| held.start < start)
            .map(|(held, ..)| held.end);
        assert_eq!(
            tree.last_end_before(start, except),
            before.max().unwrap_or(0)
        );
        let after = others()
            .map(|(held, ..)| held.start)
            .filter(|from| *from >= start);
        assert_eq!(tree.first_start_from(start, except), after.min());
    }

    #[test]
    fn agrees_with_a_plain_list() {
        let mut rng = SeededRng::new(11);
        let (mut tree, mut naive) = (IntervalTree::default(), Naive::new());
        for slot in 0..3000u32 {
            if naive.len() > 40 && rng.below(5) < 3 {
                let (range, _, gone) = naive.swap_remove(rng.below(naive.len() as u64) as usize);
                tree.remove(range, gone);
            } else {
                let start = rng.below(1000);
                let range = ByteRange::new(start, start + 1 + rng.below(60));
                let client = ClientId(rng.below(4));
                tree.insert(range, client, slot);
                naive.push((range, client, slot));
            }
            check(&tree, &naive, &mut rng);
        }
    }

    #[test]
    fn a_visit_can_stop_early() {
        let mut tree = IntervalTree::default();
        for slot in 0..100 {
            tree.insert(ByteRange::ALL, ClientId(u64::from(slot)), slot);
        }
        let mut seen = 0;
        let finished = tree.overlapping(ByteRange::new(0, 1), None, &mut |_| {
            seen += 1;
            seen < 5
        });
        assert!(!finished && seen == 5);
    }
}
