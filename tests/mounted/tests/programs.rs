//! Programs that people use, on a mount.
// SEMANTICS: op.flock, op.exec, op.mmap, op.rename, op.link, op.setattr

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::time::Duration;

use mounted::{Cluster, git_repository, run};

fn on_a_mount(script: &str) {
    let cluster = Cluster::with_mounts(1);
    cluster.timed_for(Duration::from_secs(200), script, || {
        run(cluster.root(0), script)
    })
}

/// The clone is looked at, and an older state of it is checked out.
const GIT_CLONE: &str = "
cd copy
test -z \"$(git status --porcelain)\"
test $(git log --oneline | wc -l) = 11
git checkout -q HEAD~5
git checkout -q -
";

#[test]
fn git_keeps_a_repository() {
    on_a_mount(&(git_repository(100, 10) + GIT_CLONE));
}

const MAKE: &str = "
mkdir project
cd project
for i in $(seq 1 24); do
  echo \"int f$i(int x) { return x + $i; }\" > f$i.c
  echo \"int f$i(int x);\" >> all.h
done
{ echo '#include <stdio.h>'; echo '#include \"all.h\"'; echo 'int main(void) { int x = 0;'
  for i in $(seq 1 24); do echo \"x = f$i(x);\"; done
  printf '%s\\n' 'printf(\"%d\\n\", x); return 0; }'; } > main.c
printf 'OBJECTS = $(patsubst %%.c,%%.o,$(wildcard *.c))\\nprogram: $(OBJECTS)\\n\\t$(CC) -o $@ $^\\n' > Makefile
make -s -j4
test $(./program) = 300
make -q
touch f1.c
! make -q
make -s -j4
test $(./program) = 300
";

#[test]
fn make_builds_a_project_with_four_jobs() {
    on_a_mount(MAKE);
}

const SQLITE: &str = "
sqlite3 db 'create table t (writer integer, number integer);'
write() {
  for i in $(seq 1 100); do
    echo \".timeout 60000\ninsert into t values ($1, $i);\" | sqlite3 db
  done
}
write 1 & first=$!
write 2 & second=$!
wait $first
wait $second
test \"$(sqlite3 db 'select count(*), count(distinct writer * 1000 + number) from t')\" = '200|200'
test \"$(sqlite3 db 'pragma integrity_check')\" = ok
";

// SEMANTICS: op.flock
#[test]
fn sqlite_serves_two_writers_on_one_mount() {
    on_a_mount(SQLITE);
}

const RSYNC: &str = "
mkdir from
cd from
for i in $(seq 1 300); do mkdir -p d$((i % 11))/e$((i % 3)); head -c $((i * 97)) /dev/urandom > d$((i % 11))/e$((i % 3))/file$i; done
ln d1/e1/file1 hard
ln -s d1/e1 soft
chmod 750 d2
touch -d '2001-02-03 04:05:06.123456789' d3
cd ..
rsync -aH from/ $ON_MOUNT/there
diff -r from $ON_MOUNT/there
rsync -aH $ON_MOUNT/there/ back
diff -r from back
test -z \"$(rsync -aHni --checksum from/ back)\"
test -z \"$(rsync -aHni --checksum from/ $ON_MOUNT/there)\"
test \"$(stat -c %y $ON_MOUNT/there/d3)\" = \"$(stat -c %y from/d3)\"
tar cf from.tar from
mkdir $ON_MOUNT/tar
tar xf from.tar -C $ON_MOUNT/tar
diff -r from $ON_MOUNT/tar/from
tar cf again.tar -C $ON_MOUNT/tar from
tar df again.tar
rm -r $ON_MOUNT/tar $ON_MOUNT/there
test -z \"$(ls $ON_MOUNT)\"
";

#[test]
fn rsync_and_tar_bring_a_tree_there_and_back() {
    let cluster = Cluster::with_mounts(1);
    let script = format!("ON_MOUNT={}\n{RSYNC}", cluster.root(0).display());
    cluster.timed_for(Duration::from_secs(200), "rsync and tar", || {
        run(&cluster.local(), &script)
    });
}
