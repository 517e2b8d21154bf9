//! Properties of policies for any objects and specs.

use proptest::prelude::*;

use super::*;

proptest! {
    /// However objects are created, changed, deleted and age, the due ones are those that the rules select.
    #[test]
    fn what_is_due_is_what_the_rules_say(
        count in 0_i64..4,
        all: bool,
        steps in prop::collection::vec((0_u8..8, 0_i64..40, any::<bool>(), any::<bool>()), 0..50),
    ) {
        let rules = json!({"maxAge": "30h", "keepNewest": {"count": count, "per": "Label", "label": "app"}});
        let rules = if all { json!({"maxAge": null, "all": rules}) } else { rules };
        let mut engine = engine(&spec(rules.clone()), &[]);
        let mut model: std::collections::BTreeMap<String, (i64, bool)> = std::collections::BTreeMap::new();
        let mut now = 0;
        for (number, hours, gone, left) in steps {
            let name = format!("j{number}");
            if gone && model.remove(&name).is_some() {
                engine.removed("shop", &name);
            } else {
                let created = now - hours;
                let labels = json!({"/metadata/labels": {"app": if left { "left" } else { "right" }}});
                observe(&mut engine, &job(&name, -created, labels));
                model.insert(name, (created, left));
            }
            now += 1;
            engine.tick(at(now * HOUR));
            let mut expected = BTreeSet::new();
            for side in [false, true] {
                let mut group: Vec<_> =
                    model.iter().filter(|(_, (_, left))| *left == side).map(|(name, (t, _))| (*t, name.clone())).collect();
                group.sort();
                let surplus = group.len().saturating_sub(usize::try_from(count).unwrap());
                let is_due = |place: usize, created: i64| {
                    let (is_surplus, is_old) = (place < surplus, now - created >= 30);
                    if all { is_surplus && is_old } else { is_surplus || is_old }
                };
                let due = group.iter().enumerate().filter(|(place, (t, _))| is_due(*place, *t));
                expected.extend(due.map(|(_, (_, name))| name.clone()));
            }
            let due: BTreeSet<String> =
                engine.engine.collector().due().iter().map(|(_, key)| key.name.to_string()).collect();
            prop_assert_eq!(due, expected);
        }
    }

    /// Every spec is either parsed, or its errors are reported.
    #[test]
    fn no_spec_panics(age in "\\PC{0,12}", schedule in "\\PC{0,16}", condition in "\\PC{0,24}", path in "\\PC{0,12}") {
        let _ = Policy::compile(&spec(json!({
            "maxAge": age, "schedule": schedule, "condition": condition,
            "fields": [{"path": path, "operator": "Exists"}],
        })));
    }
}
