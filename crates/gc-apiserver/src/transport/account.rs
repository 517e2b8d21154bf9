//! Account of the memory that the process holds for its clients: its budget, and the share of each standing.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gc_types::parse_quantity;

/// Minimum budget: below it, a single large request would find no room.
const MINIMUM_BUDGET: u64 = 16 << 20;
/// Divisor that gives the default budget from the machine's memory, or from a smaller cgroup or process limit.
const PART_OF_MEMORY: u64 = 2;
/// Assumed memory if no limit is known.
const ASSUMED_MEMORY: u64 = 1 << 30;
/// Eighths of the budget for clients without credentials.
const ANONYMOUS_EIGHTHS: usize = 1;
/// Eighths of the budget for anonymous and authenticated clients together; the rest is reserved for administrators.
const AUTHENTICATED_EIGHTHS: usize = 6;

/// Maximum number of bytes that a server holds for its clients: bodies of requests, unsent answers, connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget(u64);

impl MemoryBudget {
    /// Returns a budget of this number of bytes, but at least 16 MiB.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Self {
        Self(bytes.max(MINIMUM_BUDGET))
    }

    /// Returns half of the memory that this process may use: of the machine's memory, or of its smallest limit (cgroup, `ulimit`).
    #[must_use]
    pub fn of_machine() -> Self {
        Self::of_bytes(memory_limits().min().unwrap_or(ASSUMED_MEMORY) / PART_OF_MEMORY)
    }

    /// Returns the budget in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for MemoryBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse_quantity(text).and_then(|bytes| u64::try_from(bytes).ok());
        match bytes {
            Some(bytes) if bytes >= MINIMUM_BUDGET => Ok(Self(bytes)),
            Some(_) => Err(format!("expected at least {}Mi", MINIMUM_BUDGET >> 20)),
            None => Err("expected a quantity of bytes, such as 512Mi".to_owned()),
        }
    }
}

/// Returns every limit on the memory of this process that the system reports.
fn memory_limits() -> impl Iterator<Item = u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.to_owned();
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
    });
    let own = read("/proc/self/limits").unwrap_or_default();
    let rlimits = ["Max data size", "Max address space"].map(|name| soft_limit(&own, name));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let cgroups = cgroup_files(&groups)
        .into_iter()
        .filter_map(move |path| read(&path))
        .filter_map(|text| text.trim().parse().ok());
    machine.into_iter().chain(rlimits.into_iter().flatten()).chain(cgroups)
}

/// Returns a soft limit in `/proc/self/limits`; `None` if it is unlimited.
pub(crate) fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the files with the memory limits of the groups in `/proc/self/cgroup`, from each group up to the root. Inside a
/// container, the path of a group may be the host's, so the root is always read.
fn cgroup_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (folder, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{folder}{path}/{file}"));
            let Some((parent, _)) = path.rsplit_once('/') else { break };
            path = parent;
        }
    }
    files
}

/// Credentials that a client has presented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientStanding {
    /// No valid credentials.
    #[default]
    Anonymous,
    /// Credentials of some user.
    Authenticated,
    /// Credentials of an administrator.
    Privileged,
}

impl ClientStanding {
    /// All standings, from the lowest.
    pub(crate) const ALL: [Self; 3] = [Self::Anonymous, Self::Authenticated, Self::Privileged];

    /// Returns the standing's name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Authenticated => "authenticated",
            Self::Privileged => "privileged",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// The bytes would exceed the budget, or a share of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverBudget;

/// Account of the memory held for clients.
#[derive(Debug)]
pub(crate) struct Account {
    budget: usize,
    held: [AtomicUsize; ClientStanding::ALL.len()],
}

impl Account {
    /// Creates an account in which nothing is held.
    pub(crate) fn new(budget: MemoryBudget) -> Arc<Self> {
        let budget = usize::try_from(budget.bytes()).unwrap_or(usize::MAX / 8);
        Arc::new(Self { budget, held: Default::default() })
    }

    /// Returns the budget in bytes.
    pub(crate) fn budget(&self) -> usize {
        self.budget
    }

    /// Returns the number of bytes held for clients of this standing.
    pub(crate) fn held(&self, standing: ClientStanding) -> usize {
        self.held[standing.index()].load(Ordering::Relaxed)
    }

    /// Returns the limit of the memory held for this standing and all lower ones together.
    pub(crate) fn limit(&self, standing: ClientStanding) -> usize {
        match standing {
            ClientStanding::Anonymous => self.budget / 8 * ANONYMOUS_EIGHTHS,
            ClientStanding::Authenticated => self.budget / 8 * AUTHENTICATED_EIGHTHS,
            ClientStanding::Privileged => self.budget,
        }
    }

    /// Reports whether every limit that includes this standing is respected.
    fn is_within(&self, standing: ClientStanding) -> bool {
        let mut below = 0;
        ClientStanding::ALL.into_iter().all(|each| {
            below += self.held(each);
            each < standing || below <= self.limit(each)
        })
    }

    fn take(&self, standing: ClientStanding, bytes: usize) -> Result<(), OverBudget> {
        self.held[standing.index()].fetch_add(bytes, Ordering::SeqCst);
        if self.is_within(standing) {
            return Ok(());
        }
        self.give_back(standing, bytes);
        Err(OverBudget)
    }

    fn give_back(&self, standing: ClientStanding, bytes: usize) {
        self.held[standing.index()].fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Charges bytes, also to `owner`, until the charge is dropped.
    pub(crate) fn charge(
        self: &Arc<Self>,
        standing: ClientStanding,
        owner: &Arc<AtomicUsize>,
        bytes: usize,
    ) -> Result<Charge, OverBudget> {
        let mut charge = Charge { account: Arc::clone(self), owner: Arc::clone(owner), standing, bytes: 0 };
        charge.grow(bytes)?;
        Ok(charge)
    }
}

/// Bytes held for a client, until dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    /// Sum of the charges of one client.
    owner: Arc<AtomicUsize>,
    standing: ClientStanding,
    bytes: usize,
}

impl Charge {
    /// Charges further bytes.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.account.take(self.standing, bytes)?;
        self.owner.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        Ok(())
    }

    /// Splits bytes off into a separate charge; at most all of them.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            account: Arc::clone(&self.account),
            owner: Arc::clone(&self.owner),
            standing: self.standing,
            bytes,
        }
    }

    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.owner.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.give_back(self.standing, self.bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn each_standing_leaves_room_for_higher_ones() {
        use ClientStanding::{Anonymous, Authenticated, Privileged};
        let account = Account::new(MemoryBudget::of_bytes(80 << 20));
        let owner = Arc::default();
        let mebibytes = |standing, count: usize| account.charge(standing, &owner, count << 20);
        let anonymous = mebibytes(Anonymous, 10).unwrap();
        assert_eq!(mebibytes(Anonymous, 1).err(), Some(OverBudget), "an eighth");
        let mut authenticated = mebibytes(Authenticated, 50).unwrap();
        assert_eq!(authenticated.grow(1 << 20), Err(OverBudget), "six eighths, with the anonymous ones");
        let privileged = mebibytes(Privileged, 20).unwrap();
        assert!(mebibytes(Privileged, 1).is_err(), "the budget");
        assert_eq!(owner.load(Ordering::Relaxed), 80 << 20, "what is refused is not counted");
        let part = authenticated.split(30 << 20);
        drop(authenticated);
        assert_eq!((part.bytes(), account.held(Authenticated)), (30 << 20, 30 << 20));
        drop((anonymous, part, privileged));
        assert_eq!(ClientStanding::ALL.map(|standing| account.held(standing)), [0; 3]);
        assert_eq!(owner.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn limits_are_found_where_the_system_keeps_them() {
        let limits = "Limit    Soft Limit   Hard Limit  Units\nMax data size     536870912   unlimited   bytes\n\
                      Max address space   unlimited   unlimited   bytes\n";
        assert_eq!(soft_limit(limits, "Max data size"), Some(512 << 20));
        assert_eq!(soft_limit(limits, "Max address space"), None);
        let table = [
            ("0::/", vec!["/sys/fs/cgroup/memory.max"]),
            (
                "0::/a/b",
                vec![
                    "/sys/fs/cgroup/a/b/memory.max",
                    "/sys/fs/cgroup/a/memory.max",
                    "/sys/fs/cgroup/memory.max",
                ],
            ),
            (
                "5:cpu:/x\n4:hugetlb,memory:/x",
                vec![
                    "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                ],
            ),
            ("nonsense", vec![]),
        ];
        for (groups, files) in table {
            assert_eq!(cgroup_files(groups), files, "{groups:?}");
        }
        assert!(MemoryBudget::of_machine().bytes() >= MINIMUM_BUDGET);
    }

    #[test]
    fn budgets_are_quantities() {
        for (text, want) in
            [("512Mi", Some(512 << 20)), ("1G", Some(1_000_000_000)), ("16Mi", Some(16 << 20))]
        {
            assert_eq!(text.parse::<MemoryBudget>().ok().map(MemoryBudget::bytes), want, "{text}");
        }
        for text in ["", "1", "15Mi", "-1Gi", "much"] {
            assert!(text.parse::<MemoryBudget>().is_err(), "{text}");
        }
    }
}
