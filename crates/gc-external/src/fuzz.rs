//! Properties of answers from CSI drivers and machine providers, as bodies of fuzz targets (`fuzz/` at the root), which also run as
//! tests.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use gc_collectors::engine::MachineState;
use prost::Message;
use serde_json::json;

use crate::cloud::aws::{Lookup, Question, machine_state, question, read, refusal};
use crate::cloud::protocol::{API_VERSION, answer};
use crate::cloud::{Ec2Error, Machine, inventory};
use crate::csi::client::shortened;
use crate::csi::{DriverEndpoint, protocol};

/// Maximum length of a provider's text in an error, characters.
const LONGEST_SAID: usize = 200;

/// Checks that an inventory file has the same machines after being written and read, and that none is absent.
pub fn machine_inventory(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(listed) = inventory::parse(text) else { return };
    assert!(!listed.by_name.is_empty());
    let named = listed.by_name.values().filter(|(id, _)| !id.is_empty()).count();
    assert_eq!(listed.by_provider_id.len(), named);
    let word = |state: &MachineState| match state {
        MachineState::Running => "Running",
        MachineState::Shutdown => "Shutdown",
        MachineState::Absent => panic!("an inventory lists what is there"),
    };
    let machines: Vec<_> = listed
        .by_name
        .iter()
        .map(|(name, (id, state))| json!({"name": name, "providerID": id, "state": word(state)}))
        .collect();
    let kind = "MachineInventory";
    // These end a line of YAML, even in quotes.
    if machines.iter().any(|machine| machine.to_string().contains(['\u{85}', '\u{2028}', '\u{2029}'])) {
        return;
    }
    let date = listed.date.map(|date| date.to_string());
    let again = json!({"apiVersion": API_VERSION, "kind": kind, "count": machines.len(), "date": date,
        "machines": machines});
    assert_eq!(inventory::parse(&again.to_string()).as_ref(), Ok(&listed));
}

/// Checks that an answer is accepted only for its lookup; the input has the node and the ID of the lookup, one per line, and the
/// answer.
pub fn machine_answer(data: &[u8]) {
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
    let machine = Machine { node: text(next()), provider_id: text(next()) };
    let said = next();
    let Ok(state) = answer(&machine, said) else { return };
    let whole: serde_json::Value = serde_json::from_slice(said).unwrap();
    assert_eq!(whole["machine"]["state"], format!("{state:?}"));
    for other in [
        Machine { node: format!("{}x", machine.node), ..machine.clone() },
        Machine { provider_id: format!("{}x", machine.provider_id), ..machine.clone() },
    ] {
        assert!(answer(&other, said).is_err());
    }
}

/// Checks a page of `DescribeInstances`, or a refusal: every instance has a known state or the page is malformed, and error texts
/// are short and on one line.
pub fn ec2_answer(data: &[u8]) {
    if let Ok(page) = read(data) {
        for instance in page.reservations.items.iter().flat_map(|held| &held.instances.items) {
            let state = machine_state(&instance.id, &instance.state.name);
            assert!(matches!(state, Ok(_) | Err(Ec2Error::Malformed(_))));
        }
        assert!(page.next.is_none_or(|token| token.len() <= data.len()));
    }
    for status in [400, 429, 503] {
        if let Ec2Error::Refused { code, message, .. } = refusal(status, data) {
            assert_ne!(status, 429);
            for said in [code, message] {
                assert!(said.chars().count() <= LONGEST_SAID && !said.contains(char::is_control));
            }
        }
    }
}

/// Checks a region and a `spec.providerID`: the lookup uses an instance ID that is at its end.
pub fn provider_id(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (region, id) = text.split_once('\n').unwrap_or(("eu-central-1", &text));
    let machine = Machine { node: "node".into(), provider_id: id.into() };
    match question(&machine, region) {
        Ok(Lookup { question: Question::Id(instance), .. }) => {
            let lower = id.to_ascii_lowercase();
            assert!(id.starts_with("aws://") && lower.ends_with(&format!("/{instance}")));
            assert!(instance.strip_prefix("i-").unwrap().bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        Ok(Lookup { question: Question::Name(name), absence, .. }) => {
            assert_eq!((name.as_str(), id), ("node", ""));
            assert!(absence.is_err(), "it is no name that EC2 gives");
        }
        Err(_) => {}
    }
}

/// Checks that answers of a driver can be read, written and read again with the same result, and that their texts fit into a
/// message.
pub fn csi_answer(data: &[u8]) {
    fn again<M: Message + Default + PartialEq + std::fmt::Debug>(data: &[u8]) -> Option<M> {
        let message = M::decode(data).ok()?;
        assert_eq!(M::decode(message.encode_to_vec().as_slice()).as_ref(), Ok(&message));
        Some(message)
    }
    again::<protocol::GetPluginCapabilitiesResponse>(data);
    again::<protocol::ControllerGetCapabilitiesResponse>(data);
    again::<protocol::ProbeResponse>(data);
    if let Some(info) = again::<protocol::GetPluginInfoResponse>(data) {
        let said = shortened(&info.name);
        assert!(!said.contains(char::is_control) && said.chars().count() <= info.name.chars().count());
    }
}

/// Checks that a driver and its socket print as a text that parses to the same two.
pub fn csi_endpoint(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(endpoint) = DriverEndpoint::parse(text) {
        let again = DriverEndpoint::parse(&format!("{}={endpoint}", endpoint.driver()));
        assert_eq!(again.as_ref(), Ok(&endpoint));
        assert!(endpoint.path().is_absolute());
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(
    csi_answer,
    csi_endpoint,
    machine_inventory,
    machine_answer,
    ec2_answer,
    provider_id
);
