//! Groups.

use std::fmt;
use std::str::FromStr;

use super::actions::{ActionsText, actions};
use super::{Pairs, TextError, Word, value};
use crate::message::{Bucket, GroupCommand, GroupDesc, GroupKind, GroupMod};
use crate::{Match, PortNo, group_id};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupText {
    /// Number of the group, or [`group_id::ALL`].
    pub group: u32,
    /// Kind of the group, if stated.
    pub kind: Option<GroupKind>,
    pub buckets: Vec<Bucket>,
}

const KINDS: [(&str, GroupKind); 5] = [
    ("all", GroupKind::All),
    ("select", GroupKind::Select),
    ("indirect", GroupKind::Indirect),
    ("ff", GroupKind::FastFailover),
    ("fast_failover", GroupKind::FastFailover),
];

impl GroupText {
    /// Makes the message that adds, changes or deletes the group. A group without a kind sends to all buckets.
    pub fn group_mod(&self, command: GroupCommand) -> GroupMod {
        let kind = self.kind.unwrap_or(GroupKind::All);
        GroupMod { command, kind, group: self.group, buckets: self.buckets.clone() }
    }
}

impl FromStr for GroupText {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let (mut number, mut kind, mut buckets) = (None, None, Vec::new());
        let mut pairs = Pairs::new(Word::new(text));
        loop {
            if let Some(bucket) = pairs.all_after(&["bucket", "buckets"]) {
                let (bucket, rest) = first_bucket(bucket);
                buckets.push(bucket);
                pairs = Pairs::new(rest);
                continue;
            }
            let Some(pair) = pairs.next() else { break };
            let pair = pair?;
            match pair.key.text {
                "group_id" => {
                    let word = pair.value()?;
                    number = Some(if word.text.eq_ignore_ascii_case("all") {
                        group_id::ALL
                    } else {
                        match word.number()? {
                            group @ ..=group_id::MAX => group,
                            _ => return Err(word.wrong("no group can have this number")),
                        }
                    });
                }
                "type" => {
                    let word = pair.value()?;
                    let known = KINDS.iter().find(|(name, _)| *name == word.text);
                    let wrong = || word.wrong("a group is of type all, select, indirect or ff");
                    kind = Some(known.ok_or_else(wrong)?.1);
                }
                _ => return Err(pair.whole.wrong("a group has group_id, type and bucket")),
            }
        }
        let group = number.ok_or_else(|| Word::new(text).wrong("group_id is missing"))?;
        let weight = u16::from(kind == Some(GroupKind::Select));
        let buckets =
            buckets.into_iter().map(|bucket| read_bucket(bucket, weight)).collect::<Result<_, _>>()?;
        Ok(Self { group, kind, buckets })
    }
}

/// Splits off the first bucket: it ends where the next one begins.
fn first_bucket(text: Word<'_>) -> (Word<'_>, Word<'_>) {
    let next = text.text.match_indices("bucket=").map(|(at, _)| at);
    let starts = |at: &usize| text.text.get(..*at).is_some_and(|before| before.ends_with(super::DELIMITERS));
    text.split_at(next.filter(|at| starts(at)).min().unwrap_or(text.text.len()))
}

/// Reads options and actions, with or without `actions=` between them.
fn read_bucket(text: Word, default_weight: u16) -> Result<Bucket, TextError> {
    let mut bucket = Bucket {
        weight: default_weight,
        watch_port: PortNo::ANY,
        watch_group: group_id::ANY,
        actions: Vec::new(),
    };
    let mut pairs = Pairs::new(text);
    loop {
        if let Some(list) = pairs.all_after(&["actions", "action"]) {
            bucket.actions = actions(list, &Match::default())?;
            return Ok(bucket);
        }
        let before = pairs.rest;
        let Some(pair) = pairs.next() else { return Ok(bucket) };
        let pair = pair?;
        let value = || Ok(Pairs::new(pair.value()?).rest);
        match pair.key.text {
            "weight" => bucket.weight = value()?.number()?,
            "watch_port" => bucket.watch_port = value::port(value()?)?,
            "watch_group" => bucket.watch_group = value()?.number()?,
            // An `actions:` list looks like an option, so it begins here.
            _ => {
                bucket.actions = actions(before, &Match::default())?;
                return Ok(bucket);
            }
        }
    }
}

impl fmt::Display for GroupText {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.group {
            group_id::ALL => f.write_str("group_id=ALL")?,
            group => write!(f, "group_id={group}")?,
        }
        if let Some((name, _)) = KINDS.iter().find(|(_, kind)| Some(*kind) == self.kind) {
            write!(f, ",type={name}")?;
        }
        let default_weight = u16::from(self.kind == Some(GroupKind::Select));
        for bucket in &self.buckets {
            f.write_str(",bucket=")?;
            if bucket.weight != default_weight || default_weight > 0 {
                write!(f, "weight:{},", bucket.weight)?;
            }
            if bucket.watch_port != PortNo::ANY {
                write!(f, "watch_port:{},", bucket.watch_port)?;
            }
            if bucket.watch_group != group_id::ANY {
                write!(f, "watch_group:{},", bucket.watch_group)?;
            }
            write!(f, "actions={}", ActionsText(&bucket.actions))?;
        }
        Ok(())
    }
}

impl From<&GroupDesc> for GroupText {
    fn from(desc: &GroupDesc) -> Self {
        Self { group: desc.group, kind: Some(desc.kind), buckets: desc.buckets.clone() }
    }
}
