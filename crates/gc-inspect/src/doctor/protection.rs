//! Rules of `kubegc protect`: whether they refuse what they should.

use gc_explain::protect::{Status, faults};

use super::{Finding, State, finding};

/// Judges the rules of a server. A server without rules has no findings.
pub(super) fn protection(rules: &[Status]) -> Vec<Finding> {
    if rules.is_empty() {
        return Vec::new();
    }
    let faulty = faults(rules).map(|(policy, fault)| {
        let state = if fault.is_open { State::Wrong } else { State::Notice };
        finding("protection", state, format!("rule {policy}: {}", fault.message))
            .about(policy)
            .advise(fault.command.clone())
    });
    let faulty: Vec<Finding> = faulty.collect();
    if faulty.is_empty() {
        let names: Vec<&str> = rules.iter().map(|rule| rule.policy.as_str()).collect();
        return vec![finding("protection", State::Fine, format!("enforced: {}", names.join(", ")))];
    }
    faulty
}
