//! Write errors of the whole mount, reported by `glint fs sync` and at unmount. An error that an `fsync` has
//! already reported is not reported here again.

use std::fmt;

use base::FsError;

use crate::executor::{AT_ONCE, each_of};
use crate::session::client::Client;

/// Write errors reported with their paths. Of further ones the report gives the number.
const REPORTED_MAX: usize = 3;

/// Why not everything of a mount is durable.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Something could not be asked for; what it concerns may be durable or not.
    cause: Option<FsError>,
    /// Some of the files of which something is lost: their paths or FIDs, and why.
    named: Vec<(String, FsError)>,
    /// All of these.
    lost: usize,
}

impl Unwritten {
    /// How many files lost something that was written to them.
    pub fn lost(&self) -> usize {
        self.lost
    }

    fn into_result(self) -> Result<(), Unwritten> {
        match self == Unwritten::default() {
            true => Ok(()),
            false => Err(self),
        }
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lost > 0 {
            let files = if self.lost == 1 { "file" } else { "files" };
            write!(
                f,
                "what was written to {} {files} is lost in part or whole, ",
                self.lost
            )?;
            f.write_str("as it could not be stored in the background: ")?;
            for (number, (name, error)) in self.named.iter().enumerate() {
                let comma = if number == 0 { "" } else { ", " };
                write!(f, "{comma}{name} ({error})")?;
            }
            let more = self.lost.saturating_sub(self.named.len());
            match (more, self.named.is_empty()) {
                (0, _) => {}
                (_, true) => f.write_str("the mount's log names them")?,
                (more, false) => write!(f, " and {more} more, which the mount's log names")?,
            }
            f.write_str("; write these files anew once that is mended")?;
        }
        if let Some(cause) = self.cause {
            let and = if self.lost > 0 { "; and " } else { "" };
            write!(
                f,
                "{and}not everything could be made durable: {cause} (the mount's log says where); \
                 what is not may be lost when a server or this mount ends"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Unwritten {}

impl Client {
    /// Makes everything done on this mount durable. `Err`: what is not durable, and the files with losses
    /// that were not reported yet.
    pub async fn sync_or_tell(&self) -> Result<(), Unwritten> {
        let synced = self.sync().await;
        self.report_write_errors(synced).await
    }

    /// What is lost, beside how writing everything went.
    pub(crate) async fn report_write_errors(
        &self,
        synced: Result<(), FsError>,
    ) -> Result<(), Unwritten> {
        let write_errors = self.lock().cache.take_write_errors();
        let mut unwritten = Unwritten {
            cause: synced.err(),
            named: Vec::new(),
            lost: write_errors.len(),
        };
        let files = Vec::from_iter(write_errors.files);
        let mut asked = each_of(files, AT_ONCE, |(fid, error)| async move {
            (fid, error, self.path_of(fid).await)
        })
        .await;
        asked.sort_by_key(|(fid, ..)| *fid);
        for (fid, error, path) in asked {
            match path {
                // Nobody misses what was in a file that is gone.
                Err(FsError::NotFound | FsError::Stale) => unwritten.lost -= 1,
                Ok(path) if unwritten.named.len() < REPORTED_MAX => {
                    let path = String::from_utf8_lossy(&path).into_owned();
                    unwritten.named.push((path, error));
                }
                Err(_) if unwritten.named.len() < REPORTED_MAX => {
                    unwritten.named.push((fid.to_string(), error))
                }
                Ok(_) | Err(_) => {}
            }
        }
        unwritten.into_result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_named_and_counted() {
        let all = Unwritten::default();
        assert_eq!(all.into_result(), Ok(()));
        let some = Unwritten {
            cause: None,
            named: vec![("/a".to_owned(), FsError::NoSpace)],
            lost: 3,
        };
        assert_eq!(
            some.to_string(),
            "what was written to 3 files is lost in part or whole, as it could not be stored in the \
             background: /a (no space left) and 2 more, which the mount's log names; write these \
             files anew once that is mended"
        );
        let undone = Unwritten {
            cause: Some(FsError::Io),
            ..Unwritten::default()
        };
        let words = undone.into_result().unwrap_err().to_string();
        assert!(
            words.starts_with("not everything could be made durable: "),
            "{words}"
        );
    }
}
