//! What a metadata write-back cache is for (Qian and Drokin, Lustre Metadata Writeback Cache, 2022), measured
//! on several systems side by side. Every time includes making everything durable.

mod commands;
mod contest;
mod metadata;
mod pathological;
mod profiles;
mod round_trips;
mod workers;

pub use commands::Commands;
pub use contest::Contest;
pub use metadata::Metadata;
pub use pathological::Pathological;
pub use profiles::{Profile, Profiles};
pub use round_trips::RoundTrips;

#[cfg(test)]
mod tests;
