//! Rules that programs add to a card. They come before those of the filter, and go with their program.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::counters::{RuleCounters, SharedRuleCounters};
use super::filter::{FilterRule, MAX_RULES};
use super::flow_key::HashKey;
use crate::message::Subscriber;

/// Longest rule of a program, bytes.
pub const MAX_RULE_BYTES: usize = 512;

/// A checked rule of a program.
#[derive(Debug)]
pub struct ProgramRule {
    rule: FilterRule,
    text: String,
}

/// A rule that a program has added.
#[derive(Debug)]
struct AddedRule {
    /// Connection of the program, and priority: the order of the rules.
    rank: (u64, u32),
    /// Number among the program's rules.
    number: u64,
    rule: ProgramRule,
    program: Subscriber,
    /// `None` if the rule does not count.
    counters: Option<SharedRuleCounters>,
}

/// The rules of all programs. The first that fits a frame decides. Programs come in the order of their connections, the
/// rules of a program in the order of their priorities, and equal ones in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct ProgramRules(Vec<Arc<AddedRule>>);

/// A rule of a program, in messages and reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleStatus {
    /// Program that added the rule.
    pub program: Subscriber,
    /// Priority among the program's rules; the least comes first.
    pub priority: u32,
    /// The rule, as in a filter.
    pub rule: String,
    /// Counters; `None` if the rule does not count.
    pub counters: Option<RuleCounters>,
}

impl ProgramRule {
    /// Checks a rule for a card with `channels` channels.
    ///
    /// # Errors
    /// The fault of the rule, in words for the user.
    pub fn new(text: &str, channels: u16) -> Result<Self, String> {
        if text.len() > MAX_RULE_BYTES {
            return Err(format!("the rule has {} bytes: {MAX_RULE_BYTES} is the most", text.len()));
        }
        let rule: FilterRule = text.parse()?;
        rule.check(channels)?;
        // Only words of rules are left, so it can be shown on terminals.
        Ok(Self { rule, text: text.split_whitespace().collect::<Vec<_>>().join(" ") })
    }
}

impl ProgramRules {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Mask of the channels that may get a frame; `None` if no rule fits it. Counts the frame at its rule.
    #[inline]
    pub(super) fn channels(&self, key: Option<&HashKey>, frame_bytes: usize) -> Option<u32> {
        let added = self.0.iter().find(|added| added.rule.rule.fits(key))?;
        if let Some(counters) = &added.counters {
            counters.add(&RuleCounters { frames: 1, bytes: frame_bytes as u64 });
        }
        Some(added.rule.rule.channels())
    }

    /// Checks that there is room for one more rule.
    ///
    /// # Errors
    /// There is none, in words for the user.
    pub fn check_room(&self) -> Result<(), String> {
        if self.0.len() < MAX_RULES {
            return Ok(());
        }
        Err(format!("programs have {MAX_RULES} rules at the card, which is all there can be"))
    }

    /// Adds rule `number` of the program at `connection`.
    pub fn add(
        &mut self,
        connection: u64,
        number: u64,
        program: Subscriber,
        priority: u32,
        rule: ProgramRule,
        counts: bool,
    ) {
        let rank = (connection, priority);
        let counters = counts.then(SharedRuleCounters::default);
        let at = self.0.partition_point(|added| added.rank <= rank);
        self.0.insert(at, Arc::new(AddedRule { rank, number, rule, program, counters }));
    }

    fn position(&self, connection: u64, number: u64) -> Result<usize, String> {
        self.0
            .iter()
            .position(|added| added.rank.0 == connection && added.number == number)
            .ok_or_else(|| format!("the program has no rule {number} at the card"))
    }

    /// Removes a rule, and returns its counters: zeros if it does not count.
    ///
    /// # Errors
    /// The program has no such rule, in words for the user.
    pub fn remove(&mut self, connection: u64, number: u64) -> Result<RuleCounters, String> {
        let position = self.position(connection, number)?;
        Ok(self.0.remove(position).counters())
    }

    /// Removes all rules of the program at `connection`.
    pub fn remove_all(&mut self, connection: u64) {
        self.0.retain(|added| added.rank.0 != connection);
    }

    /// Counters of a rule: zeros if it does not count.
    ///
    /// # Errors
    /// The program has no such rule, in words for the user.
    pub fn counters(&self, connection: u64, number: u64) -> Result<RuleCounters, String> {
        let position = self.position(connection, number)?;
        Ok(self.0[position].counters())
    }

    /// At most `count` rules from position `from` on, for reports.
    #[must_use]
    pub fn status(&self, from: usize, count: usize) -> Vec<RuleStatus> {
        self.0
            .iter()
            .skip(from)
            .take(count)
            .map(|added| RuleStatus {
                program: added.program.clone(),
                priority: added.rank.1,
                rule: added.rule.text.clone(),
                counters: added.counters.as_ref().map(SharedRuleCounters::read),
            })
            .collect()
    }
}

impl AddedRule {
    fn counters(&self) -> RuleCounters {
        self.counters.as_ref().map(SharedRuleCounters::read).unwrap_or_default()
    }
}
