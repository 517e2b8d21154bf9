//! Worlds in which the collectors are shards: all act at once, each on its own objects. They are suspended, die, are missing for a
//! while, and their number changes while those of the former number still act. With an election, each shard has several candidates.

use gc_ownership::Shard;

use super::World;
use super::election::collectors_of_shard;
use crate::defects::Defect;
use crate::random::Random;
use crate::story::Story;

/// Numbers of shards.
const COUNTS: [u32; 5] = [1, 2, 2, 3, 4];
/// Number per thousand of shards that are replaced at once when they die, and of shards of a new number that begin at once.
const REPLACED_AT_ONCE: u32 = 600;
/// Number per thousand of shards of a former number that end as soon as another number begins.
const ENDED_AT_ONCE: u32 = 500;
/// Maximum number of collectors.
const COLLECTORS: usize = 10;

/// Returns the number of shards at the beginning of a world.
pub(super) fn first_count(story: &Story) -> u32 {
    if story.shards { Random::new(story.seed ^ 0x7368_6172_6473).pick(&COUNTS) } else { 1 }
}

impl World<'_> {
    /// Returns the shard as which a collector begins.
    pub(super) fn planted_shard(&self, shard: Shard) -> Shard {
        if self.options.defect == Some(Defect::ShardMissing) {
            return Shard::new(shard.index(), shard.count() + 1).unwrap_or(shard);
        }
        shard
    }

    pub(super) fn wanted(&self) -> impl Iterator<Item = Shard> + use<> {
        let count = self.shards;
        (0..count).filter_map(move |index| Shard::new(index, count).ok())
    }

    /// Returns the number of collectors of this shard, other than suspended ones.
    fn moving_of(&self, shard: Shard) -> usize {
        let shard = self.planted_shard(shard);
        let of_it = self
            .collectors
            .iter()
            .filter(|collector| !collector.paused && collector.engine().config().shard == shard);
        of_it.count()
    }

    /// Begins every shard that is wanted and has fewer moving collectors than this.
    pub(super) fn begin_missing_shards(&mut self, collectors: usize) {
        for shard in self.wanted() {
            for _ in self.moving_of(shard)..collectors {
                self.begin_shard(shard);
            }
        }
    }

    /// Replaces a shard that has died, often only later.
    pub(super) fn replace_shard(&mut self, shard: Shard, random: &mut Random) {
        if random.chance(REPLACED_AT_ONCE) {
            let is_wanted = self.wanted().find(|wanted| self.planted_shard(*wanted) == shard);
            if let Some(shard) = is_wanted {
                self.begin_shard(shard);
            }
        } else {
            self.report.note_happened("shards missing");
        }
    }

    /// Suspends a shard, and begins another in its place.
    pub(super) fn suspend_shard(&mut self) {
        let mut random = self.choices();
        let Some(index) = self.moving(&mut random).filter(|_| self.collectors.len() < COLLECTORS) else {
            return;
        };
        let collector = &mut self.collectors[index];
        collector.paused = true;
        let (number, shard) = (collector.number, collector.engine().config().shard);
        self.report.note_happened("shards suspended");
        self.note(|| format!("  collector {number}, shard {shard}, stops moving"));
        self.replace_shard(shard, &mut random);
    }

    /// Lets suspended shards continue, unaware, and begins those that are missing.
    pub(super) fn wake_shards(&mut self) {
        for collector in &mut self.collectors {
            collector.paused = false;
        }
        self.begin_missing_shards(1);
        self.note(|| "  suspended shards continue, and missing ones begin".to_owned());
    }

    /// Begins shards of another number, while some of the former number still act.
    pub(super) fn renumber_shards(&mut self) {
        let mut random = self.choices();
        self.end_former_shards(0, &mut random);
        self.shards = random.pick(&COUNTS);
        let count = self.shards;
        self.report.note_happened("shards renumbered");
        self.note(|| format!("the operator wants {count} shards"));
        self.end_former_shards(1_000 - ENDED_AT_ONCE, &mut random);
        for shard in self.wanted() {
            for _ in self.moving_of(shard)..collectors_of_shard(self.story) {
                if random.chance(REPLACED_AT_ONCE) {
                    self.begin_shard(shard);
                }
            }
        }
    }

    /// Ends shards of a former number, except for this many per thousand.
    fn end_former_shards(&mut self, spared: u32, random: &mut Random) {
        let wanted: Vec<Shard> = self.wanted().map(|shard| self.planted_shard(shard)).collect();
        let mut index = 0;
        while index < self.collectors.len() {
            let is_former = !wanted.contains(&self.collectors[index].engine().config().shard);
            if is_former && !random.chance(spared) {
                self.end_shard(index, random);
            } else {
                index += 1;
            }
        }
    }

    fn end_shard(&mut self, index: usize, random: &mut Random) {
        let collector = self.collectors.remove(index);
        let (number, shard) = (collector.number, collector.engine().config().shard);
        self.note(|| format!("  collector {number}, shard {shard}, ends"));
        self.set_adrift(collector, random);
    }

    /// Leaves one collector, or one for each shard.
    pub(super) fn end_surplus_collectors(&mut self) {
        if !self.story.shards {
            while self.collectors.len() > 1 {
                self.retire();
            }
            return;
        }
        let mut random = self.choices();
        self.end_former_shards(0, &mut random);
        for shard in self.wanted() {
            let shard = self.planted_shard(shard);
            let is_of = |index: &usize| self.collectors[*index].engine().config().shard == shard;
            let several: Vec<usize> = (0..self.collectors.len()).filter(is_of).collect();
            // The last one began last.
            for index in several.into_iter().rev().skip(1) {
                self.end_shard(index, &mut random);
            }
        }
        for collector in &mut self.collectors {
            collector.paused = false;
        }
        self.begin_missing_shards(1);
    }

    pub(super) fn choices(&self) -> Random {
        Random::new(self.story.seed ^ self.now.unsigned_abs() ^ self.born as u64)
    }
}
