//! The names of a protocol's operations, for counters, logs and rules.

/// Gives `$request` the name of each of its operations, and the list of all.
macro_rules! operations {
    ($request:ident: $($variant:ident = $name:literal,)*) => {
        impl $request {
            /// The name of every operation, in the order of their numbers.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The operation's name, for counters, logs and rules (Lustre's word where it has one).
            pub fn name(&self) -> &'static str {
                match self {
                    $($request::$variant { .. } => $name,)*
                }
            }
        }
    };
}

pub(crate) use operations;

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
