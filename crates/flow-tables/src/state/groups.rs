//! Changes of groups by controllers.

use std::collections::HashMap;
use std::sync::Arc;

use ringroad_openflow::action::Action;
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::message::{Bucket, FlowRemoved, FlowRemovedReason, GroupCommand, GroupKind, GroupMod};
use ringroad_openflow::oxm::Match;
use ringroad_openflow::{group_id, table_id};

use super::{FlowState, actions, uses_group};
use crate::flow::FlowEntry;
use crate::group::GroupEntry;
use crate::memory_budget;
use crate::pipeline::MAX_GROUPS_DEEP;
use crate::tables::Change;

impl FlowState {
    /// Changes groups. Returns the entries that were deleted with a group.
    ///
    /// # Errors
    /// The error for the controller; nothing has changed then.
    pub fn group_mod(&mut self, request: &GroupMod, now_ns: u64) -> Result<Vec<FlowRemoved>, ErrorCode> {
        let old = self.tables.groups.get(&request.group).cloned();
        match request.command {
            GroupCommand::Add | GroupCommand::Modify => {
                match (request.command, &old) {
                    (GroupCommand::Add, Some(_)) => return Err(ErrorCode::GROUP_EXISTS),
                    (GroupCommand::Modify, None) => return Err(ErrorCode::GROUP_UNKNOWN),
                    _ => {}
                }
                self.check_group(request)?;
                if old.is_none() && self.tables.groups.len() >= self.limits.groups {
                    return Err(ErrorCode::GROUP_OUT_OF_GROUPS);
                }
                let bytes = memory_budget::of_group(&request.buckets);
                if !self.charge(bytes) {
                    return Err(ErrorCode::GROUP_OUT_OF_GROUPS);
                }
                if let Some(old) = &old {
                    self.budget.give_back(memory_budget::of_group(&old.buckets));
                }
                let (counter, added_ns) = match &old {
                    Some(old) => {
                        self.unpublished.extend(&old.bucket_counters);
                        (old.counter, old.added_ns)
                    }
                    None => (self.counter(), now_ns),
                };
                let bucket_counters = request.buckets.iter().map(|_| self.counter()).collect();
                let buckets = request.buckets.clone();
                let group = GroupEntry { kind: request.kind, buckets, added_ns, counter, bucket_counters };
                self.change(Change::Group(request.group, Some(Arc::new(group))));
                Ok(Vec::new())
            }
            GroupCommand::Delete if request.group == group_id::ALL => {
                let users = |flow: &FlowEntry| {
                    actions(&flow.instructions).any(|action| matches!(action, Action::Group(_)))
                };
                let flows = self.with(table_id::ALL, users);
                self.remove_groups(|_| true);
                Ok(self.remove_all(flows, FlowRemovedReason::GroupDelete, now_ns))
            }
            GroupCommand::Delete if request.group > group_id::MAX => Err(ErrorCode::GROUP_INVALID),
            GroupCommand::Delete => {
                let is_used = |group: &GroupEntry| {
                    group
                        .buckets
                        .iter()
                        .flat_map(|bucket| &bucket.actions)
                        .any(|action| matches!(action, Action::Group(used) if *used == request.group))
                };
                if self.tables.groups.values().any(|group| is_used(group)) {
                    return Err(ErrorCode::GROUP_CHAINED);
                }
                if old.is_none() {
                    return Ok(Vec::new());
                }
                let flows = self.with(table_id::ALL, |flow| uses_group(&flow.instructions, request.group));
                self.remove_groups(|number| number == request.group);
                Ok(self.remove_all(flows, FlowRemovedReason::GroupDelete, now_ns))
            }
        }
    }

    pub(super) fn remove_groups(&mut self, is_meant: impl Fn(u32) -> bool) {
        let groups = self.tables.groups.iter().filter(|(number, _)| is_meant(**number));
        let groups: Vec<_> = groups.map(|(&number, group)| (number, Arc::clone(group))).collect();
        for (number, group) in groups {
            self.budget.give_back(memory_budget::of_group(&group.buckets));
            self.unpublished.push(group.counter);
            self.unpublished.extend(&group.bucket_counters);
            self.change(Change::Group(number, None));
        }
    }

    fn check_group(&self, request: &GroupMod) -> Result<(), ErrorCode> {
        let has_weights = request.buckets.iter().any(|bucket| bucket.weight != 0);
        // Weights are for select groups alone, and zero in others (OpenFlow 1.3.5, 6.5 and 7.3.4.2).
        let is_invalid = match request.kind {
            GroupKind::Select => false,
            GroupKind::Indirect => has_weights || request.buckets.len() != 1,
            GroupKind::All | GroupKind::FastFailover => has_weights,
        };
        if request.group > group_id::MAX || is_invalid {
            return Err(ErrorCode::GROUP_INVALID);
        }
        if request.buckets.len() > self.limits.buckets {
            return Err(ErrorCode::GROUP_OUT_OF_BUCKETS);
        }
        let mut depths = HashMap::new();
        for bucket in &request.buckets {
            if self.depth(bucket, request.group, 0, &mut depths).is_none() {
                return Err(ErrorCode::GROUP_LOOP);
            }
            self.check_actions(&bucket.actions, Some(&Match::default())).or_else(|error| match error {
                // The presence of a field is checked for each entry that uses the group.
                ErrorCode::ACTION_MATCH_INCONSISTENT => Ok(()),
                error => Err(error),
            })?;
        }
        Ok(())
    }

    /// Depth of the groups behind a bucket. `None` if its packets reach `wanted`, or if the depth exceeds the limit.
    /// `depths` has the groups that were checked, so that each is checked once.
    fn depth(
        &self,
        bucket: &Bucket,
        wanted: u32,
        above: usize,
        depths: &mut HashMap<u32, usize>,
    ) -> Option<usize> {
        let next = bucket.actions.iter().filter_map(|action| match action {
            Action::Group(group) => Some(*group),
            _ => None,
        });
        let next = next.chain(Some(bucket.watch_group).filter(|&group| group != group_id::ANY));
        let mut deepest = 0;
        for group in next {
            if group == wanted || above >= MAX_GROUPS_DEEP {
                return None;
            }
            let depth = match depths.get(&group) {
                Some(&depth) => depth,
                None => {
                    let mut deepest = 0;
                    let behind = self.tables.groups.get(&group);
                    for bucket in behind.into_iter().flat_map(|group| group.buckets.iter()) {
                        deepest = deepest.max(self.depth(bucket, wanted, above + 1, depths)?);
                    }
                    depths.insert(group, deepest + 1);
                    deepest + 1
                }
            };
            if above + depth > MAX_GROUPS_DEEP {
                return None;
            }
            deepest = deepest.max(depth);
        }
        Some(deepest)
    }
}
