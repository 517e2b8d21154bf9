//! The machine provider of the simulated cluster: it knows which machines are gone, reports this late, fails, and lies.

use std::collections::BTreeMap;

use gc_collectors::engine::{MachineState, Observation};
use gc_controller::requests::refuses_outside;
use gc_types::{ObjectKey, Outcome, OutsideCall, ResourceVersion, Uid};

use crate::performed::PerformedRequest;
use crate::random::Random;

/// Maximum number of false reports to one collector that a machine is gone. (The truth in between may get lost on its way: with one
/// more lie, no collector that believes three consecutive answers could notice.)
pub const LIES: u32 = 2;

/// True state of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// True if the machine no longer exists; it never comes back.
    pub gone: bool,
    /// True if the machine is shut down.
    pub shut_down: bool,
}

/// The provider of all machines.
#[derive(Clone, Debug, Default)]
pub struct Provider {
    machines: BTreeMap<String, Machine>,
    /// Number of lies to each collector about each machine.
    lies: BTreeMap<(usize, String), u32>,
    /// True if the provider only tells the truth from now on.
    pub honest: bool,
}

impl Provider {
    /// Adds a machine, and returns its name at the provider.
    pub fn start(&mut self) -> String {
        let name = format!("sim://{}", self.machines.len());
        self.machines.insert(name.clone(), Machine::default());
        name
    }

    /// Returns the state of a machine; an unknown one is gone.
    #[must_use]
    pub fn machine(&self, name: &str) -> Machine {
        self.machines.get(name).copied().unwrap_or(Machine { gone: true, shut_down: false })
    }

    /// Changes a machine that is not gone.
    pub fn change(&mut self, name: &str, machine: Machine) {
        if let Some(known) = self.machines.get_mut(name).filter(|known| !known.gone) {
            *known = machine;
        }
    }

    /// Starts all machines that are shut down.
    pub fn start_all(&mut self) {
        for machine in self.machines.values_mut() {
            machine.shut_down = false;
        }
    }

    /// Answers a collector's question.
    pub fn answer(
        &mut self,
        collector: usize,
        name: &str,
        random: &mut Random,
    ) -> Result<MachineState, String> {
        let machine = self.machine(name);
        let lies = self.lies.entry((collector, name.to_owned())).or_default();
        if !self.honest && !machine.gone && *lies < LIES && random.chance(250) {
            *lies += 1;
            return Ok(MachineState::Absent);
        }
        if !self.honest && random.chance(100) {
            return Err("the provider is not available".to_owned());
        }
        Ok(match machine {
            Machine { gone: true, .. } => MachineState::Absent,
            Machine { shut_down: true, .. } => MachineState::Shutdown,
            Machine { .. } => MachineState::Running,
        })
    }
}

/// Question about a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeQuestion<'a> {
    /// Node that it concerns.
    pub key: &'a ObjectKey,
    /// UID of the node.
    pub uid: &'a Uid,
    /// Version that was judged.
    pub version: ResourceVersion,
    /// Asking collector.
    pub collector: usize,
}

/// Performs an external call as an adapter does: only if `read` shows the object as it was judged.
pub fn ask_outside(
    provider: &mut Provider,
    read: PerformedRequest,
    asked: &NodeQuestion<'_>,
    call: &OutsideCall,
    random: &mut Random,
) -> PerformedRequest {
    if let Some(outcome) = refuses_outside(&read.outcome, asked.uid, asked.version) {
        return PerformedRequest { outcome, ..read };
    }
    let OutsideCall::LookUpMachine { provider_id } = call else {
        let outcome = Outcome::Refused { code: 0, message: "there is no storage here".to_owned() };
        return PerformedRequest { outcome, ..read };
    };
    let state = provider.answer(asked.collector, provider_id, random);
    let outcome = match &state {
        Ok(_) => Outcome::Applied(None),
        Err(message) => Outcome::Failed { message: message.clone(), retry_after_milliseconds: None },
    };
    let (node, uid) = (asked.key.clone(), asked.uid.clone());
    PerformedRequest { observations: vec![Observation::Machine { node, uid, state }], outcome, ..read }
}
