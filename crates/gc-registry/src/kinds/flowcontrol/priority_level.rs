//! Priority levels.

use super::flow_schema::conditions;
use crate::kinds::prelude::*;
use crate::kinds::shared::names::range_error;

const QUEUES_MAX: i64 = 10_000_000;
/// Number of bits in the hash that deals the hands.
const HASH_BITS: i64 = 60;

pub(crate) struct PriorityLevelConfiguration;

impl Kind for PriorityLevelConfiguration {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Type", F("api.flowcontrol.v1.PriorityLevelConfigurationSpec", "type")),
        H::text(
            "NominalConcurrencyShares",
            F("api.flowcontrol.v1.LimitedPriorityLevelConfiguration", "nominalConcurrencyShares"),
        ),
        H::text("Queues", F("api.flowcontrol.v1.QueuingConfiguration", "queues")),
        H::text("HandSize", F("api.flowcontrol.v1.QueuingConfiguration", "handSize")),
        H::text("QueueLengthLimit", F("api.flowcontrol.v1.QueuingConfiguration", "queueLengthLimit")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let number = |path: &[&str]| {
            int_or_string(at(row.object, path)).map_or_else(|| NONE.into(), |_| Value::from(row.number(path)))
        };
        let queuing = |key: &str| number(&["spec", "limited", "limitResponse", "queuing", key]);
        vec![
            row.name(),
            row.text(&["spec", "type"]).into(),
            number(&["spec", "limited", "nominalConcurrencyShares"]),
            queuing("queues"),
            queuing("handSize"),
            queuing("queueLengthLimit"),
            row.age(),
        ]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        match spec.get("type").and_then(Value::as_str) {
            Some("Limited") => {
                let Some(limited) = existing(spec, "limited") else { return };
                fill_absent(limited, "nominalConcurrencyShares", 30);
                fill_absent(limited, "lendablePercent", 0);
                let Some(response) = child(limited, "limitResponse") else { return };
                if response.get("type").is_some_and(|kind| kind == "Queue")
                    && let Some(queuing) = existing(response, "queuing")
                {
                    fill_zero(queuing, "queues", 64);
                    fill_zero(queuing, "handSize", 8);
                    fill_zero(queuing, "queueLengthLimit", 50);
                }
            }
            Some("Exempt") => {
                if let Some(exempt) = child(spec, "exempt") {
                    fill_absent(exempt, "nominalConcurrencyShares", 0);
                    fill_absent(exempt, "lendablePercent", 0);
                }
            }
            _ => {}
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let (metadata, spec) = (object.get("metadata"), object.get("spec"));
        let kind = spec.get("type");
        if (metadata.text_of("name") == "exempt") != (kind.text() == "Exempt") {
            let why = "must be 'Exempt' if and only if `name` is 'exempt'";
            report.invalid_text(&kind, kind.text(), why);
        }
        let (limited, exempt) = (spec.get("limited"), spec.get("exempt"));
        match kind.text() {
            "Exempt" => {
                if limited.is_set() {
                    report.forbidden(&limited, "must be nil if the type is not Limited");
                }
                if exempt.is_set() {
                    shares(&exempt, report);
                }
            }
            "Limited" => {
                if exempt.is_set() {
                    report.forbidden(&exempt, "must be nil if the type is Limited");
                }
                if limited.is_set() {
                    limits(&limited, report);
                } else {
                    report.required(&limited, "must not be empty when type is Limited");
                }
            }
            _ => report.not_supported(&kind, &["Exempt", "Limited"]),
        }
        conditions(object, report);
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        conditions(new, report);
    }
}

fn shares(field: &Field<'_, '_>, report: &mut Report) {
    let shares = field.get("nominalConcurrencyShares");
    if shares.number() < 0 {
        report.invalid(&shares, "must be a non-negative integer");
    }
    let percent = field.get("lendablePercent");
    if percent.integer().is_some_and(|percent| !(0..=100).contains(&percent)) {
        report.invalid(&percent, &range_error(0, 100));
    }
}

fn limits(field: &Field<'_, '_>, report: &mut Report) {
    shares(field, report);
    let borrowed = field.get("borrowingLimitPercent");
    if borrowed.number() < 0 {
        report.invalid(&borrowed, "if specified, must be a non-negative integer");
    }
    let response = field.get("limitResponse");
    let queuing = response.get("queuing");
    match response.text_of("type") {
        "Reject" => {
            if queuing.is_set() {
                let why = "must be nil if limited.limitResponse.type is not Limited";
                report.forbidden(&queuing, why);
            }
        }
        "Queue" => {
            if queuing.is_set() {
                queues(&queuing, report);
            } else {
                let why = "must not be empty if limited.limitResponse.type is Limited";
                report.required(&queuing, why);
            }
        }
        _ => report.not_supported(&response.get("type"), &["Queue", "Reject"]),
    }
}

fn queues(field: &Field<'_, '_>, report: &mut Report) {
    let (length, queues, hand) = (field.get("queueLengthLimit"), field.get("queues"), field.get("handSize"));
    if length.number() <= 0 {
        report.invalid_number(&length, "must be positive");
    }
    if queues.number() <= 0 {
        report.invalid_number(&queues, "must be positive");
    } else if queues.number() > QUEUES_MAX {
        report.invalid(&queues, &format!("must not be greater than {QUEUES_MAX}"));
    }
    if hand.number() <= 0 {
        report.invalid_number(&hand, "must be positive");
    } else if hand.number() > queues.number() {
        report.invalid(&hand, &format!("should not be greater than queues ({})", queues.number()));
    } else if entropy_bits(queues.number(), hand.number()) > HASH_BITS {
        let why = format!(
            "required entropy bits of deckSize {} and handSize {} should not be greater than {HASH_BITS}",
            queues.number(),
            hand.number()
        );
        report.invalid(&hand, &why);
    }
}

/// Returns the number of bits needed to deal `hand` cards of a deck.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // As upstream: logarithms of small numbers.
fn entropy_bits(deck: i64, hand: i64) -> i64 {
    ((deck as f64).log2() * hand as f64).ceil() as i64
}
