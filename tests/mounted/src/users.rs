//! Users that a test makes and removes.

use std::process::{Command, Stdio};

/// A user with a group of its own and the same name, removed when this is dropped.
pub struct TestUser {
    name: String,
}

impl TestUser {
    /// Makes a user, which only root can.
    pub fn make(role: &str) -> TestUser {
        let name = format!("glint-{role}-{}", std::process::id());
        let arguments = [
            "--no-create-home",
            "--user-group",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/bin/false",
        ];
        let mut useradd = Command::new("useradd");
        let made = useradd.args(arguments).arg(&name).status();
        let made = made.expect("useradd runs");
        assert!(made.success(), "useradd {name}: {made}");
        TestUser { name }
    }

    /// Its name, and its group's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its user id.
    pub fn uid(&self) -> u32 {
        let user = nix::unistd::User::from_name(&self.name).expect("users can be read");
        user.expect("it was made").uid.as_raw()
    }

    /// Makes it a member of `groups`, which must exist, besides its own.
    pub fn join(&self, groups: &str) {
        let mut usermod = Command::new("usermod");
        let joined = usermod.args(["--groups", groups, &self.name]).status();
        assert!(joined.is_ok_and(|status| status.success()), "usermod");
    }
}

impl Drop for TestUser {
    fn drop(&mut self) {
        let mut userdel = Command::new("userdel");
        let removed = userdel.arg(&self.name).stdout(Stdio::null()).status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("user {} stays", self.name);
        }
    }
}
