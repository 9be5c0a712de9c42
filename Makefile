# Every gate and every way to run Glint; `make` alone lists them.

CARGO ?= cargo
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
TOOLS := target/tools

.DEFAULT_GOAL := help
SECONDS ?= 60
PREFIX ?= /usr/local
SEED ?= 1
.PHONY: help build install demo check rules test gate soak sim sim-trace planted deps deps-run tools clean

# Debian packages, each with its reason. To build and run:
define PACKAGES_RUN
gcc: links Rust programs, and builds C with several jobs on a mount
libc6-dev: what programs are linked with
fuse3: fusermount3, which mounts for ordinary users and unmounts for all
xz-utils: unpacks the kernel's source tree, for measurements
e2fsprogs: mkfs.ext4, for the local file system that measurements stand beside
iputils-ping: checks the emulated link's round trip
endef
# To test, besides:
define PACKAGES_TEST
attr: getfattr and setfattr on a mount
cpio: copies files that were just written
git: a clone, status and gc on a mount
iperf3: checks the emulated link's bandwidth
iproute2: networks and links of the tests' own, which are cut
passwd: useradd and userdel, for tests as an ordinary user
python3: a stranger that answers in place of a mount
rsync: a tree there and back
sqlite3: concurrent writers on a mount
endef
export PACKAGES_RUN PACKAGES_TEST

help: ## this list
	@echo "Glint: a POSIX file system for clusters. Targets:"
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-9s %s\n", $$1, $$2}'

build: ## target/release/glint
	$(CARGO) build --release --package cli

install: build ## glint, and the names by which mount and umount find it: PREFIX=/usr/local DESTDIR=
	install -D target/release/glint $(DESTDIR)$(PREFIX)/bin/glint
	install -d $(DESTDIR)/sbin
	for name in mount.glint mount.fuse.glint umount.glint umount.fuse.glint; do \
		ln -sf $(PREFIX)/bin/glint $(DESTDIR)/sbin/$$name; \
	done

demo: deps-run build ## some minutes: a source tree over a slow link, beside the local disk and others
	target/release/glint bench demo

# Called as `cargo clippy` calls the compiler, the documentation needs nothing compiled that was linted.
AS_LINTED = RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" \
	CLIPPY_ARGS=--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

check: rules ## format, lints, tidy, licences, documentation
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
# With examples, crates of others have the features that they had for the lints.
	$(AS_LINTED) RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --quiet --lib --bins --examples

rules: deps-run ## of these, what compiles nothing: format, tidy, licences
	$(CARGO) fmt --all --check
	$(CARGO) xtask tidy
	$(CARGO) xtask licences

# A part of the tests: CRATE and NAME, both optional.
SELECTED := $(if $(CRATE),--crate $(CRATE)) $(if $(NAME),--name $(NAME))

# The target that runs meanwhile, on processors that the tests leave idle.
MEANWHILE ?=

test: deps $(if $(filter-out mounted,$(CRATE)),,tools) ## all tests, and simulated clusters beside some of them; a part: CRATE=client NAME=part-of-a-name
	@PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" $(CARGO) xtask test $(SELECTED) $(if $(MEANWHILE),--meanwhile $(MEANWHILE))

# `.ci/rustc` lints and documents what is built for tests.
gate: ## check and test, one in the pauses of the other
	@$(MAKE) test MEANWHILE=rules

soak: tools ## the same with millions of operations: an hour and more
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" $(CARGO) test --workspace --release -- --ignored soak --nocapture

sim: ## simulated clusters under faults, seed after seed: SECONDS=60 SEED=1
	$(CARGO) run --quiet --release --package sim -- $(SECONDS) $(SEED)

sim-trace: ## one of them, SEED=1, with all that happened in it
	$(CARGO) run --quiet --release --package sim -- trace $(SEED)

RUNS ?= 3
LIMIT ?= 120
planted: ## bugs put into a copy of the tree are found by simulated clusters: RUNS=3 LIMIT=120; half an hour
	$(CARGO) xtask planted --runs $(RUNS) --limit $(LIMIT)

# They wait for mounts, so only what makes and compares bytes is optimised. Both share their dependencies.
INSTALL := CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug \
	--config profile.dev.package.fsx.opt-level=2 --root $(TOOLS) --target-dir $(TOOLS)/build

tools: $(TOOLS)/bin/pjdfstest $(TOOLS)/bin/fsx ## conformance tests of other projects, as programs

$(TOOLS)/bin/pjdfstest: | deps
	@echo "will install pjdfstest into $(TOOLS): checks that a mount behaves as POSIX says"
	$(INSTALL) pjdfstest@0.2.2

$(TOOLS)/bin/fsx: | deps
	@echo "will install fsx into $(TOOLS): random reads and writes of one file on a mount"
	$(INSTALL) fsx@0.3.2

deps-run: ## Debian packages needed to build and run
	@PACKAGES="$$PACKAGES_RUN" SUDO="$(SUDO)" .ci/install

deps: ## Debian packages needed to build, run and test
	@PACKAGES="$$PACKAGES_RUN$$(printf '\n ')$$PACKAGES_TEST" SUDO="$(SUDO)" .ci/install

clean: ## removes build results and the demo's data
	$(CARGO) clean
	rm -rf demo-data
