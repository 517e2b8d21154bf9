//! Users of the layers in CRI-O's storage (containers/storage), according to its records: `images.json`, `layers.json` and
//! `containers.json` of a driver, and the lists of those that need not survive a crash (`volatile-layers.json`,
//! `volatile-containers.json`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::account::Holder;

/// The records of a storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// Holder of each recorded layer.
    pub layers: BTreeMap<String, Holder>,
    /// Identifiers of images, whose directories contain their manifests.
    pub images: BTreeSet<String>,
    /// Identifiers of containers and sandboxes.
    pub containers: BTreeSet<String>,
}

#[derive(Deserialize)]
struct LayerRecord {
    id: String,
    #[serde(default)]
    parent: String,
    #[serde(default)]
    flags: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct ImageRecord {
    id: String,
    #[serde(default)]
    layer: String,
    #[serde(default, rename = "mapped-layers")]
    mapped_layers: Vec<String>,
}

#[derive(Deserialize)]
struct ContainerRecord {
    id: String,
    #[serde(default)]
    layer: String,
}

/// Flag of a layer whose creation has not been completed.
const INCOMPLETE: &str = "incomplete";

impl Storage {
    /// Reads the records from one or more lists of each kind; an empty text is a list that does not exist yet.
    pub fn read<T: AsRef<str>>(
        images: &[T],
        layers: &[T],
        containers: &[T],
    ) -> Result<Self, serde_json::Error> {
        let images: Vec<ImageRecord> = list(images)?;
        let layers: Vec<LayerRecord> = list(layers)?;
        let containers: Vec<ContainerRecord> = list(containers)?;
        let parents: BTreeMap<&str, &str> =
            layers.iter().map(|layer| (layer.id.as_str(), layer.parent.as_str())).collect();
        let mut holders: BTreeMap<&str, Holder> = BTreeMap::new();
        let mut hold = |top: &str, holder: Holder| {
            let mut next = parents.get_key_value(top).map(|(id, _)| *id);
            // A layer with a holder already counts its parents; records may also refer to each other in a cycle.
            while let Some(id) = next.filter(|id| !holders.contains_key(id)) {
                holders.insert(id, holder);
                next = parents.get(id).and_then(|parent| parents.get_key_value(*parent)).map(|(id, _)| *id);
            }
        };
        for image in &images {
            hold(&image.layer, Holder::Image);
            for layer in &image.mapped_layers {
                hold(layer, Holder::Image);
            }
        }
        for container in &containers {
            hold(&container.layer, Holder::Container);
        }
        let of = |layer: &LayerRecord| {
            let is_incomplete =
                layer.flags.get(INCOMPLETE).is_some_and(|flag| flag != &serde_json::json!(false));
            let without = if is_incomplete { Holder::Ingest } else { Holder::Nothing };
            (layer.id.clone(), holders.get(layer.id.as_str()).copied().unwrap_or(without))
        };
        Ok(Self {
            layers: layers.iter().map(of).collect(),
            images: images.iter().map(|image| image.id.clone()).collect(),
            containers: containers.iter().map(|container| container.id.clone()).collect(),
        })
    }
}

fn list<T: serde::de::DeserializeOwned>(texts: &[impl AsRef<str>]) -> Result<Vec<T>, serde_json::Error> {
    let mut records = Vec::new();
    for text in texts.iter().map(AsRef::as_ref).filter(|text| !text.trim().is_empty()) {
        records.extend(serde_json::from_str::<Option<Vec<T>>>(text)?.unwrap_or_default());
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn layers_are_kept_by_images_containers_or_nothing() {
        let layers = json!([
            {"id": "base", "diff-digest": "sha256:1"},
            {"id": "app", "parent": "base"},
            {"id": "mapped", "parent": "base"},
            {"id": "old", "parent": ""},
            {"id": "of-old", "parent": "old"},
            {"id": "lost", "parent": "base"},
            {"id": "half", "parent": "lost", "flags": {"incomplete": true}},
            {"id": "whole", "parent": "gone", "flags": {"incomplete": false}},
        ]);
        let images = json!([{"id": "i1", "names": ["registry.example/app:1"], "layer": "app", "mapped-layers": ["mapped"]}]);
        let containers = json!([{"id": "c2", "layer": "of-old", "image": "gone"}]);
        // For containers that need not survive a crash, which are all that CRI-O creates.
        let volatile_layers = json!([{"id": "writable", "parent": "app"}]);
        let volatile = json!([{"id": "c1", "layer": "writable", "image": "i1"}]);
        let texts =
            |first: &serde_json::Value, second: &serde_json::Value| [first.to_string(), second.to_string()];
        let (layers, containers) = (texts(&layers, &volatile_layers), texts(&containers, &volatile));
        let found = Storage::read(&[images.to_string()], &layers, &containers).unwrap();
        let expected = [
            ("base", Holder::Image),
            ("app", Holder::Image),
            ("mapped", Holder::Image),
            ("writable", Holder::Container),
            ("old", Holder::Container),
            ("of-old", Holder::Container),
            ("lost", Holder::Nothing),
            ("half", Holder::Ingest),
            ("whole", Holder::Nothing),
        ];
        assert_eq!(found.layers, expected.map(|(id, holder)| (id.to_owned(), holder)).into());
        assert_eq!(found.containers, ["c1", "c2"].map(str::to_owned).into());
        assert_eq!(Storage::read(&["", ""], &["null", ""], &["[]", "[]"]).unwrap(), Storage::default());
        for wrong in ["{}", "[{}]"] {
            assert!(Storage::read(&["", wrong], &[], &[]).is_err());
        }
    }

    proptest! {
        /// Records that refer to each other in cycles, or to nothing, cause no endless loop; each layer has one holder.
        #[test]
        fn every_layer_has_a_holder(
            parents in prop::collection::vec(0_usize..12, 0..12), tops in prop::collection::vec((0_usize..14, any::<bool>()), 0..6),
        ) {
            let layers: Vec<_> = parents.iter().enumerate()
                .map(|(id, parent)| json!({"id": id.to_string(), "parent": parent.to_string()})).collect();
            let of = |wanted: bool| -> Vec<_> {
                tops.iter().filter(|(_, is_image)| *is_image == wanted)
                    .map(|(top, _)| json!({"id": format!("x{top}"), "layer": top.to_string()})).collect()
            };
            let [images, all, containers] = [of(true), layers.clone(), of(false)].map(|list| [json!(list).to_string()]);
            let found = Storage::read(&images, &all, &containers).unwrap();
            prop_assert_eq!(found.layers.len(), layers.len());
            for (top, is_image) in &tops {
                if let Some(holder) = found.layers.get(&top.to_string()) {
                    let held = [Holder::Image, Holder::Container].contains(holder);
                    prop_assert!(held && (!is_image || *holder == Holder::Image));
                }
            }
        }
    }
}
