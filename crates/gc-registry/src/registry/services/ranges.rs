//! Ranges of the addresses and node ports of services.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use crate::kinds::shared::names::parse_cidr;

/// Ranges of the addresses and node ports of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRanges {
    first: Ipv4Addr,
    prefix_bits: u8,
    node_ports: (u16, u16),
}

/// Reason why a range cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The text is not a valid range of addresses.
    #[error(
        "{0:?} is not a valid range of IPv4 addresses with 8 to 24 fixed bits and up to 29, such as 10.96.0.0/12"
    )]
    Addresses(String),
    /// The text is not a valid range of ports.
    #[error("{0:?} is not a valid range of ports from 1 to 65535, such as 30000-32767 or 30000+100")]
    NodePorts(String),
}

impl Default for ServiceRanges {
    /// Returns kubeadm's ranges.
    fn default() -> Self {
        Self { first: Ipv4Addr::new(10, 96, 0, 0), prefix_bits: 12, node_ports: (30_000, 32_767) }
    }
}

/// Returns the size of the part of a range that is preserved for explicit requests, until the rest is used up: upstream's rule.
fn reserved(size: u32, step: u32, most: u32) -> u32 {
    /// Minimum size of the reserved part, and of a range that has one.
    const LEAST: u32 = 16;
    if size < LEAST { 0 } else { (size / step).clamp(LEAST, most) }
}

impl ServiceRanges {
    /// Shortest and longest prefix.
    const PREFIXES: RangeInclusive<u8> = 8..=29;

    /// Sets the range of addresses, such as `10.96.0.0/12`.
    ///
    /// # Errors
    /// Fails if the text is not such a range, or the range is too small or too large.
    pub fn with_addresses(self, range: &str) -> Result<Self, RangeError> {
        match parse_cidr(range) {
            Some((IpAddr::V4(address), bits)) if Self::PREFIXES.contains(&bits) => {
                let mask = u32::MAX << (32 - u32::from(bits));
                Ok(Self { first: Ipv4Addr::from(u32::from(address) & mask), prefix_bits: bits, ..self })
            }
            _ => Err(RangeError::Addresses(range.to_owned())),
        }
    }

    /// Sets the range of node ports, such as `30000-32767`, `30000+100` or `30000`.
    ///
    /// # Errors
    /// Fails if the text is not such a range.
    pub fn with_node_ports(self, range: &str) -> Result<Self, RangeError> {
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let ends = if let Some((first, last)) = range.split_once('-') {
            number(first).zip(number(last))
        } else if let Some((first, more)) = range.split_once('+') {
            number(first).zip(number(more)).and_then(|(first, more)| Some((first, first.checked_add(more)?)))
        } else {
            number(range).map(|port| (port, port))
        };
        match ends {
            Some((first, last)) if first > 0 && first <= last => {
                Ok(Self { node_ports: (first, last), ..self })
            }
            _ => Err(RangeError::NodePorts(range.to_owned())),
        }
    }

    /// Returns the range of addresses in the form `10.96.0.0/12`.
    #[must_use]
    pub fn addresses(&self) -> String {
        format!("{}/{}", self.first, self.prefix_bits)
    }

    /// Returns the address of the range itself, which no service has.
    pub(crate) fn first_address(&self) -> Ipv4Addr {
        self.first
    }

    /// Returns the address of the Service `kubernetes`.
    #[must_use]
    pub fn api_address(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first) + 1)
    }

    fn size(&self) -> u32 {
        1 << (32 - u32::from(self.prefix_bits))
    }

    /// Returns the numbers of all addresses that a service may have: all but the first and the last.
    fn usable(&self) -> RangeInclusive<u32> {
        let first = u32::from(self.first);
        first + 1..=first + self.size() - 2
    }

    /// Reports whether a service may have an address.
    pub(crate) fn has_address(&self, address: Ipv4Addr) -> bool {
        self.usable().contains(&u32::from(address))
    }

    /// Returns the numbers of the addresses given to services: the first band is used before the second.
    pub(crate) fn address_bands(&self) -> [RangeInclusive<u32>; 2] {
        let (first, last) = self.usable().into_inner();
        let dynamic = first + reserved(self.size(), 16, 256);
        [dynamic..=last, first..=dynamic - 1]
    }

    /// Reports whether a service may have a node port.
    pub(crate) fn has_node_port(&self, port: i64) -> bool {
        (i64::from(self.node_ports.0)..=i64::from(self.node_ports.1)).contains(&port)
    }

    /// Returns the range of node ports in the form `30000-32767`.
    pub(crate) fn node_ports(&self) -> String {
        format!("{}-{}", self.node_ports.0, self.node_ports.1)
    }

    /// Returns the node ports given to services: the first band is used before the second.
    pub(crate) fn node_port_bands(&self) -> [RangeInclusive<u32>; 2] {
        let (first, last) = (u32::from(self.node_ports.0), u32::from(self.node_ports.1));
        let dynamic = first + reserved(last - first + 1, 32, 128);
        // In a small range, the reserved part is empty.
        [dynamic..=last, first..=dynamic.saturating_sub(1)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn ranges_are_read_or_refused() {
        let addresses =
            |text: &str| ServiceRanges::default().with_addresses(text).map(|ranges| ranges.addresses());
        assert_eq!(addresses("10.0.0.0/24").unwrap(), "10.0.0.0/24");
        assert_eq!(addresses("10.0.0.77/24").unwrap(), "10.0.0.0/24");
        for wrong in ["", "10.0.0.0", "10.0.0.0/30", "10.0.0.0/7", "fd00::/108", "10.0.0.0/24,fd00::/108"] {
            assert_eq!(addresses(wrong).unwrap_err(), RangeError::Addresses(wrong.into()));
        }
        let ports =
            |text: &str| ServiceRanges::default().with_node_ports(text).map(|ranges| ranges.node_ports());
        for (text, wanted) in [("1-2", "1-2"), ("30000+10", "30000-30010"), ("80", "80-80")] {
            assert_eq!(ports(text).unwrap(), wanted);
        }
        for wrong in ["", "0-2", "5-4", "1-65536", "60000+60000", "a-b"] {
            assert_eq!(ports(wrong).unwrap_err(), RangeError::NodePorts(wrong.into()));
        }
    }

    #[test]
    fn bands_cover_what_is_usable() {
        let number = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap());
        let small = ServiceRanges::default().with_addresses("10.0.0.0/24").unwrap();
        let wanted = [number("10.0.0.17")..=number("10.0.0.254"), number("10.0.0.1")..=number("10.0.0.16")];
        assert_eq!(small.address_bands(), wanted);
        let tiny = ServiceRanges::default().with_addresses("10.0.0.0/29").unwrap();
        assert_eq!(tiny.address_bands()[0], number("10.0.0.1")..=number("10.0.0.6"));
        assert!(tiny.address_bands()[1].is_empty());
        assert_eq!(ServiceRanges::default().node_port_bands(), [30_086..=32_767, 30_000..=30_085]);
        assert!(small.with_node_ports("80").unwrap().node_port_bands()[1].is_empty());
    }
}
