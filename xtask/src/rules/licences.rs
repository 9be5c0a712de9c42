//! Every dependency may be used on terms of this list.

use crate::finding::Finding;
use crate::metadata::Package;

/// Terms that ask for no more than a notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Looks at each package's licence expression.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    packages
        .iter()
        .filter_map(|package| {
            let terms = package.license.as_deref().unwrap_or("no licence");
            let what = format!(
                "{} {} is under `{terms}`; use another crate, or add the terms in \
                 xtask/src/rules/licences.rs with a reason",
                package.name, package.version
            );
            (!may_use(terms)).then(|| Finding::new("Cargo.lock", 0, what))
        })
        .collect()
}

/// Evaluates an SPDX expression; what is no expression is refused.
fn may_use(terms: &str) -> bool {
    let spaced = terms.replace('(', " ( ").replace(')', " ) ");
    let spaced = spaced.replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut expression = Expression { words, at: 0 };
    let allowed = expression.any();
    allowed && expression.at == expression.words.len()
}

struct Expression<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl Expression<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.get(self.at) == Some(&word);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> bool {
        let mut allowed = self.all();
        while self.take("OR") {
            allowed |= self.all();
        }
        allowed
    }

    fn all(&mut self) -> bool {
        let mut allowed = self.one();
        while self.take("AND") {
            allowed &= self.one();
        }
        allowed
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            return self.any() & self.take(")");
        }
        let Some(name) = self.words.get(self.at) else {
            return false;
        };
        self.at += 1;
        let mut name = (*name).to_owned();
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.words.get(self.at).unwrap_or(&""));
            self.at += 1;
        }
        ALLOWED.contains(&name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_understood() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-2.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(may_use(good), "{good}");
        }
        for bad in [
            "",
            "GPL-2.0-only",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT MIT",
            "Apache-2.0 WITH",
            "APSL-2.0",
        ] {
            assert!(!may_use(bad), "{bad}");
        }
    }
}
