//! Expiry by the annotations and labels of other tools, for clusters that migrate to kubegc.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gc_types::{ForeignMark, GoDuration, Marks, Timestamp};

use crate::expiry::BadMark;
use crate::objects::{parse_time, time_text};

/// A tool whose annotations or labels count when `--foreign-expiry` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignTool {
    /// kube-janitor: `janitor/ttl` and `janitor/expires`.
    KubeJanitor,
    /// k8s-ttl-controller: `k8s-ttl-controller.twin.sh/ttl`, counted from `…/refreshed-at` if that is set.
    TtlController,
    /// Kyverno: the label `cleanup.kyverno.io/ttl`.
    Kyverno,
}

impl ForeignTool {
    /// All tools.
    pub const ALL: [Self; 3] = [Self::KubeJanitor, Self::TtlController, Self::Kyverno];

    /// Returns its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeJanitor => "kube-janitor",
            Self::TtlController => "k8s-ttl-controller",
            Self::Kyverno => "kyverno",
        }
    }

    /// Returns the tool that a mark belongs to.
    #[must_use]
    pub const fn of(mark: ForeignMark) -> Self {
        match mark {
            ForeignMark::JanitorTtl | ForeignMark::JanitorExpires => Self::KubeJanitor,
            ForeignMark::TtlController | ForeignMark::TtlControllerRefreshed => Self::TtlController,
            ForeignMark::Kyverno => Self::Kyverno,
        }
    }
}

impl fmt::Display for ForeignTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no tool with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not known; expected kube-janitor, k8s-ttl-controller or kyverno")]
pub struct UnknownTool(String);

impl FromStr for ForeignTool {
    type Err = UnknownTool;

    fn from_str(text: &str) -> Result<Self, UnknownTool> {
        Self::ALL.into_iter().find(|tool| tool.name() == text).ok_or_else(|| UnknownTool(text.to_owned()))
    }
}

/// Reports whether annotations matter to this collector: its own, or those of an enabled tool.
pub(crate) fn are_meant(marks: &Marks, tools: &[ForeignTool]) -> bool {
    marks.ttl.is_some()
        || marks.expires_at.is_some()
        || marks.keep.is_some()
        || marks.foreign_marks().any(|(mark, _)| tools.contains(&ForeignTool::of(mark)))
}

/// Returns when an object expires by the annotations of these tools, and by which. They all count from the creation.
pub(crate) fn expiry(marks: &Marks, tools: &[ForeignTool]) -> Result<Option<(Timestamp, String)>, BadMark> {
    let mut first: Option<(Timestamp, String)> = None;
    for (mark, text) in marks.foreign_marks().filter(|(mark, _)| tools.contains(&ForeignTool::of(*mark))) {
        let at = deadline(marks, mark, text)?;
        let Some(at) = at else { continue };
        if first.as_ref().is_none_or(|(earliest, _)| at < *earliest) {
            first = Some((at, format!("its {} is {text}, which ended at {}", mark.key(), time_text(at))));
        }
    }
    Ok(first)
}

/// Returns the time at which one mark lets an object expire, if ever.
pub(super) fn deadline(
    marks: &Marks,
    mark: ForeignMark,
    text: &Arc<str>,
) -> Result<Option<Timestamp>, BadMark> {
    Ok(match mark {
        ForeignMark::JanitorTtl => janitor_ttl(text)?.zip(marks.created).map(after),
        ForeignMark::JanitorExpires => Some(date_or_time(mark, text, JANITOR_TIME)?),
        ForeignMark::TtlController => {
            let ttl = milliseconds(mark, text)?;
            let begins = match marks.foreign(ForeignMark::TtlControllerRefreshed) {
                None => marks.created,
                Some(refreshed) => Some(parse_time(Some(refreshed)).ok_or_else(|| {
                    let expected = "a time such as 2027-01-31T12:00:00Z";
                    bad(ForeignMark::TtlControllerRefreshed, refreshed, expected)
                })?),
            };
            begins.map(|begins| begins.after(ttl))
        }
        ForeignMark::TtlControllerRefreshed => None,
        ForeignMark::Kyverno if text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('-') => {
            Some(date_or_time(mark, text, KYVERNO_TIME)?)
        }
        ForeignMark::Kyverno => Some(milliseconds(mark, text)?).zip(marks.created).map(after),
    })
}

/// Description of the times that kube-janitor accepts.
const JANITOR_TIME: &str = "a time such as 2027-01-31T12:00:00Z or a date";
/// Description of the times that Kyverno accepts; labels cannot contain colons.
const KYVERNO_TIME: &str = "a time such as 2027-01-31T120000Z, a date, or a duration such as 36h";

fn after((milliseconds, begins): (i64, Timestamp)) -> Timestamp {
    begins.after(milliseconds)
}

fn bad(mark: ForeignMark, text: &Arc<str>, expected: &'static str) -> BadMark {
    BadMark::Foreign { key: mark.key(), text: Arc::clone(text), expected }
}

/// Parses one number with one unit, or `forever`.
fn janitor_ttl(text: &Arc<str>) -> Result<Option<i64>, BadMark> {
    if &**text == "forever" {
        return Ok(None);
    }
    milliseconds(ForeignMark::JanitorTtl, text).map(Some)
}

fn milliseconds(mark: ForeignMark, text: &Arc<str>) -> Result<i64, BadMark> {
    let duration = GoDuration::parse_with_days(text).ok().filter(|duration| duration.0 >= 0);
    let duration = duration.ok_or_else(|| bad(mark, text, "a duration such as 36h or 7d"))?;
    Ok(duration.to_milliseconds_rounded_up())
}

/// Parses RFC 3339, with or without colons and seconds, or a date, which means its beginning in UTC.
fn date_or_time(mark: ForeignMark, text: &Arc<str>, expected: &'static str) -> Result<Timestamp, BadMark> {
    let with_seconds = || parse_time(Some(&format!("{text}:00Z")));
    let from_date = || parse_time(Some(&format!("{text}T00:00:00Z")));
    parse_time(Some(text)).or_else(with_seconds).or_else(from_date).ok_or_else(|| bad(mark, text, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: i64 = 1_800_000_000_000;
    const HOUR: i64 = 3_600_000;
    /// 2027-01-31T12:00:00Z
    const NOON: i64 = 1_801_396_800_000;

    #[test]
    fn marks_of_other_tools_mean_what_they_mean_to_those() {
        use ForeignMark::{JanitorExpires, JanitorTtl, Kyverno, TtlController, TtlControllerRefreshed};
        let bad = |text: &str| Err(text.to_owned());
        for (foreign, expected) in [
            (&[(JanitorTtl, "36h")][..], Ok(Some(CREATED + 36 * HOUR))),
            (&[(JanitorTtl, "7d")], Ok(Some(CREATED + 7 * 24 * HOUR))),
            (&[(JanitorTtl, "forever")], Ok(None)),
            (&[(JanitorTtl, "2w"), (JanitorExpires, "2027-01-31T12:00:00Z")], Ok(Some(CREATED + 336 * HOUR))),
            (&[(JanitorExpires, "2027-01-31T12:00")], Ok(Some(NOON))),
            (&[(JanitorExpires, "2027-01-31")], Ok(Some(NOON - 12 * HOUR))),
            (&[(TtlController, "1h30m")], Ok(Some(CREATED + HOUR * 3 / 2))),
            (
                &[(TtlController, "1h"), (TtlControllerRefreshed, "2027-01-31T12:00:00Z")],
                Ok(Some(NOON + HOUR)),
            ),
            (&[(TtlControllerRefreshed, "2027-01-31T12:00:00Z")], Ok(None)),
            (&[(Kyverno, "2m")], Ok(Some(CREATED + 120_000))),
            (&[(Kyverno, "2027-01-31T120000Z")], Ok(Some(NOON))),
            (&[(Kyverno, "2027-01-31")], Ok(Some(NOON - 12 * HOUR))),
            (&[], Ok(None)),
            (
                &[(JanitorTtl, "soon")],
                bad("janitor/ttl: \"soon\" is not understood; expected a duration such as 36h or 7d"),
            ),
            (
                &[(Kyverno, "2027-13-01")],
                bad("cleanup.kyverno.io/ttl: \"2027-13-01\" is not understood; expected a time such as \
                     2027-01-31T120000Z, a date, or a duration such as 36h"),
            ),
        ] {
            let mut marks = Marks { created: Some(Timestamp(CREATED)), ..Marks::default() };
            for (mark, text) in foreign {
                marks.foreign[*mark as usize] = Some(Arc::from(*text));
            }
            let found = expiry(&marks, &ForeignTool::ALL).map_err(|error| error.to_string());
            assert_eq!(found.map(|found| found.map(|(at, _)| at.0)), expected, "{foreign:?}");
            assert_eq!(expiry(&marks, &[]), Ok(None), "{foreign:?}: nothing is on");
            assert_eq!(
                (are_meant(&marks, &ForeignTool::ALL), are_meant(&marks, &[])),
                (!foreign.is_empty(), false)
            );
        }
    }

    /// Of several marks the earliest counts, and of several at one time the first.
    #[test]
    fn the_earliest_mark_counts() {
        use ForeignMark::{JanitorExpires, JanitorTtl, Kyverno};
        let noon = "2027-01-31T12:00:00Z";
        for (ttl, kyverno, expected) in [
            ("30d", "30d", format!("its janitor/expires is {noon}, which ended at {noon}")),
            ("388h", "30d", format!("its janitor/ttl is 388h, which ended at {noon}")),
            (
                "30d",
                "387h",
                "its cleanup.kyverno.io/ttl is 387h, which ended at 2027-01-31T11:00:00Z".to_owned(),
            ),
        ] {
            let mut marks = Marks { created: Some(Timestamp(CREATED)), ..Marks::default() };
            for (mark, text) in [(JanitorTtl, ttl), (JanitorExpires, noon), (Kyverno, kyverno)] {
                marks.foreign[mark as usize] = Some(Arc::from(text));
            }
            let found = expiry(&marks, &ForeignTool::ALL).map(|found| found.map(|(_, why)| why));
            assert_eq!(found, Ok(Some(expected)), "{ttl} {kyverno}");
        }
    }

    #[test]
    fn tools_are_known_by_their_names() {
        for tool in ForeignTool::ALL {
            assert_eq!(tool.to_string().parse(), Ok(tool));
        }
        assert_eq!("janitor".parse::<ForeignTool>(), Err(UnknownTool("janitor".to_owned())));
    }
}
