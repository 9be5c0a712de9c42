//! Bits that flip: of frames, of records, of files' bytes.

use base::Rng;

use super::Injector;
use crate::excuses::{AFTERMATH, Excuse};

impl Injector<'_> {
    pub(super) fn flip(&mut self) -> String {
        let link = self.link();
        let (to_server, bit) = (self.below(2) == 0, self.numbers.next_u64());
        self.cluster.network.flip(link, to_server, bit);
        let way = if to_server { "to" } else { "from" };
        format!("a bit of the next frame {way} the server of {link:?} is flipped")
    }

    /// A bit of a server's records is wrong, from while it runs or from while it is off; after a
    /// while the disk is cured. Whatever ends the server meanwhile names the damage.
    pub(super) fn rot(&mut self) -> Result<String, String> {
        let (node, begun) = (self.server(), self.scheduler.time());
        let (runs_on, pause, time) = (self.below(2) == 0, self.millis(1000), self.millis(4000));
        let mut at = 0;
        if runs_on {
            at = self.cluster.machine(node).flip_bit(&mut self.numbers)?;
            threads::sleep(time);
        }
        let mut found: Vec<String> = self.cluster.machine(node).stopped().into_iter().collect();
        // In good order: of what a power cut has left there may be one copy only.
        self.cluster.stop(node);
        threads::sleep(pause);
        if !runs_on {
            at = self.cluster.machine(node).flip_bit(&mut self.numbers)?;
        }
        found.extend(self.cluster.power_on(node).err());
        threads::sleep(time);
        found.extend(self.cluster.machine(node).stopped());
        self.cluster.power_off(&[node], &mut self.numbers)?;
        self.cluster.machine(node).cure();
        self.cluster.power_on(node)?;
        let until = self.scheduler.time() + AFTERMATH;
        self.excuses.failures.push(Excuse {
            client: None,
            file: None,
            from: begun,
            until,
        });
        let name = self.cluster.machine(node).name().to_string();
        let is_named = |why: &&String| why.contains("damaged record") && why.contains(&name);
        let unnamed = found.iter().filter(|why| !is_named(why));
        self.violations
            .extend(unnamed.map(|why| format!("a flipped bit of {name} was not named: {why}")));
        let seen = found.first().map_or("nobody read it", String::as_str);
        Ok(format!(
            "for {:?} a bit of byte {at} of {name} is flipped: {seen}",
            until - begun
        ))
    }

    /// A bit of a file is wrong on the disk of an OST that was ended in good order: all that it has is
    /// sealed. It is never read; calls that need it fail, of this file only, until the disk is cured.
    pub(super) fn flip_byte(&mut self) -> Result<String, String> {
        let (node, begun, pause, time) = (
            self.ost(),
            self.scheduler.time(),
            self.millis(1000),
            self.millis(6000),
        );
        self.cluster.stop(node);
        threads::sleep(pause);
        let files = self.files.clone();
        let flipped = self
            .cluster
            .machine(node)
            .flip_byte(&files, &mut self.numbers)?;
        self.cluster.power_on(node)?;
        threads::sleep(time);
        self.cluster.stop(node);
        let named = self.cluster.machine(node).names_wrong_byte();
        self.violations.extend(named.err());
        self.cluster.machine(node).cure();
        self.cluster.power_on(node)?;
        let (until, name) = (
            self.scheduler.time() + AFTERMATH,
            self.cluster.machine(node).name(),
        );
        let Some(fid) = flipped else {
            return Ok(format!("{name} is ended twice, and has no bytes"));
        };
        let number = files.iter().position(|file| *file == fid);
        self.excuses.failures.push(Excuse {
            client: None,
            file: number.map(|number| number as u8),
            from: begun,
            until,
        });
        Ok(format!(
            "for {time:?} a bit of {fid} is flipped on the disk of {name}"
        ))
    }
}
