//! A script that makes a git repository and reads it back.

/// Makes `repo` of so many files, commits so many changes after the first commit, packs and checks it, and
/// compares its clone `copy` with it.
pub fn git_repository(files: u32, changes: u32) -> String {
    format!(
        "
git init -q -b main repo
cd repo
git config user.name me
git config user.email me@example.org
for i in $(seq 1 {files}); do mkdir -p dir$((i % 7)); echo content $i > dir$((i % 7))/file$i; done
git add .
git commit -q -m first
for i in $(seq 1 {changes}); do echo more $i >> dir1/file1; git commit -q -am \"change $i\"; done
git gc -q
git fsck --full
test -z \"$(git status --porcelain)\"
cd ..
git clone -q repo copy
diff -r -x .git repo copy
"
    )
}
