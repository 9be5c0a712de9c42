//! What can be set while mounted. Names are Lustre's where it has them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A tunable of one mount.
pub struct Param {
    /// `llite.*.NAME`.
    pub name: &'static str,
    /// What it does, its unit, and what its limits do.
    pub help: &'static str,
    /// Smallest value taken.
    pub min: u64,
    /// Largest value taken.
    pub max: u64,
    default: u64,
    cell: fn(&Params) -> &AtomicU64,
}

macro_rules! params {
    ($($name:ident = $default:expr, $min:expr, $max:expr, $help:expr;)*) => {
        /// The values.
        #[derive(Debug)]
        pub struct Params { $($name: AtomicU64,)* }

        impl Default for Params {
            fn default() -> Params {
                Params { $($name: AtomicU64::new($default),)* }
            }
        }

        impl Params {
            $(#[doc = $help] pub fn $name(&self) -> u64 { self.$name.load(Ordering::Relaxed) })*
        }

        /// Every tunable.
        pub const ALL: &[Param] = &[$(Param {
            name: stringify!($name), help: $help, min: $min, max: $max, default: $default,
            cell: |params| &params.$name,
        },)*];
    };
}

params! {
    statahead_max = 8192, 0, 65_536,
        "Entries whose attributes are fetched ahead of a walk; 0: one request for each stat.";
    statahead_tree_max = 131_072, 0, 16_777_216,
        "Entries of directories fetched ahead of a walk of a tree, where the server is far away; close by no more than 65,536. 0: one request for each directory.";
    statahead_bytes_max = 16 << 20, 0, 1 << 32,
        "Bytes of small files fetched ahead of a reader in order; 0: one request for each.";
    statahead_fname_max = 256, 0, 4096,
        "Names fetched ahead of a program that asks for numbered ones in order, without a listing; 0: none.";
    statahead_agl = 1, 0, 1,
        "1: sizes that only OSTs know are fetched ahead of a program that stats in listing order, many in one message, where no writer holds them; 0: one request for each.";
    statahead_min = 8, 2, 8192,
        "Entries a walk that stats in order starts with; doubles on hits.";
    wbc = 0, 0, 1,
        "1: files are made here in directories that this mount has to itself, and the MDT is told later. It is being built: what is not told is lost with an eviction, and with the process of a mount without a supervisor.";
    writeback_age_ms = 2000, 0, 600_000,
        "Milliseconds after which a new file is told to the MDT (wbc).";
    opencache = 1, 0, 1,
        "1: that a program is executed stays known to the MDT when it has ended, until somebody wants to write it: the next execution costs no request; 0: each costs one.";
    batch_max = 256, 1, 4096,
        "Requests in one message; 1: no batches.";
    lazy_size = 0, 0, 1,
        "1: a file that is open for writing elsewhere has the size that the MDT knows, of its last close (mount -o lazysize).";
    dirty_max = 256 << 20, 1 << 20, 1 << 40,
        "Bytes written and not yet sent; beyond, writers wait. At the start no more than an eighth of memory.";
    dirty_age_ms = 1000, 10, 60_000,
        "Milliseconds after which written bytes are sent.";
    cache_bytes_max = 1 << 30, 1 << 20, 1 << 44,
        "Bytes of file data kept in memory; set to an eighth of it (or of the cgroup's limit) at the start.";
    cache_entries_max = 4_000_000, 1000, 1 << 32,
        "Files whose attributes are kept, beside 260,000 around each reader of a long directory; beyond, what readers have passed goes, then what was of no use for longest. At the start no more than fit in an eighth of memory.";
}

impl Params {
    /// Sets `name` to `value`.
    pub fn set(&self, name: &str, value: u64) -> Result<(), String> {
        let param = find(name)?;
        if value < param.min || value > param.max {
            return Err(format!(
                "{name} takes {} to {}, not {value}",
                param.min, param.max
            ));
        }
        (param.cell)(self).store(value, Ordering::Relaxed);
        Ok(())
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Result<u64, String> {
        Ok((find(name)?.cell)(self).load(Ordering::Relaxed))
    }
}

impl Param {
    /// What it is unless set.
    pub fn default_value(&self) -> u64 {
        self.default
    }
}

fn find(name: &str) -> Result<&'static Param, String> {
    ALL.iter()
        .find(|param| param.name == name)
        .ok_or_else(|| format!("no such parameter: {name}; 'glint param list' shows all"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_within_its_limits_and_values_outside_are_refused() {
        let params = Params::default();
        for param in ALL {
            let value = params.get(param.name).expect("listed");
            assert_eq!(value, param.default_value());
            assert!((param.min..=param.max).contains(&value), "{}", param.name);
        }
        assert!(params.set("batch_max", 0).is_err() && params.set("nonsense", 1).is_err());
        params.set("batch_max", 1).expect("within limits");
        assert_eq!(params.batch_max(), 1);
    }
}
