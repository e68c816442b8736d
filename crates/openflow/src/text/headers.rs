//! Headers of one packet.

use std::fmt;
use std::str::FromStr;

use super::matching::{MatchReader, MatchText};
use super::value::Value;
use super::{Pairs, TextError, Word};
use crate::oxm::{ETH_IP, ETH_MPLS, VLAN_PRESENT};
use crate::{FieldMatch, Match, OxmField};

/// Headers of one packet, as Open vSwitch's `ofproto/trace` takes and prints them: fields of a match, each with one
/// value, and fields that no match of OpenFlow has.
///
/// ```
/// use ringroad_openflow::text::Headers;
///
/// let headers: Headers = "tcp,in_port=1,nw_dst=10.0.0.1,nw_ttl=64,tp_dst=80".parse()?;
/// assert_eq!(headers.nw_ttl, Some(64));
/// assert!("tcp,nw_dst=10.0.0.0/8".parse::<Headers>().is_err());
/// # Ok::<(), ringroad_openflow::text::TextError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Fields of a match.
    pub fields: Match,
    /// TTL of an IPv4 header, or hop limit of an IPv6 header.
    pub nw_ttl: Option<u8>,
    /// TTL of the outermost MPLS header.
    pub mpls_ttl: Option<u8>,
}

impl Headers {
    /// Names and values of all fields that are set.
    #[must_use]
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let fields = self.fields.fields().iter().map(|one| match (one.field, one.value) {
            (OxmField::VlanVid, 0) => ("vlan_vid", "none".to_owned()),
            (OxmField::VlanVid, vid) => ("vlan_vid", (vid & !VLAN_PRESENT).to_string()),
            (field, value) => (field.name(), Value(field, value).to_string()),
        });
        let ttls = [("nw_ttl", self.nw_ttl), ("mpls_ttl", self.mpls_ttl)];
        let ttls = ttls.into_iter().filter_map(|(name, ttl)| Some((name, ttl?.to_string())));
        fields.chain(ttls).collect()
    }
}

impl FromStr for Headers {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut headers = Self::default();
        let mut fields = MatchReader::default();
        let (mut nw_ttl_word, mut mpls_ttl_word) = (None, None);
        for pair in Pairs::new(Word::new(text)) {
            let pair = pair?;
            match pair.key.text {
                "nw_ttl" => {
                    (headers.nw_ttl, nw_ttl_word) = (Some(pair.value()?.number()?), Some(pair.whole));
                }
                "mpls_ttl" => {
                    (headers.mpls_ttl, mpls_ttl_word) = (Some(pair.value()?.number()?), Some(pair.whole));
                }
                _ => fields.push(pair),
            }
        }
        let found = fields.finish()?;
        if let Some(word) = nw_ttl_word.filter(|_| !found.has(ETH_IP)) {
            return Err(word.wrong("this needs ip or ipv6 beside it"));
        }
        if let Some(word) = mpls_ttl_word.filter(|_| !found.has(ETH_MPLS)) {
            return Err(word.wrong("this needs mpls or mplsm beside it"));
        }
        let one_value = |one: &FieldMatch| match *one {
            // A tag with a priority but without a VID.
            FieldMatch { field: OxmField::VlanVid, value, mask: VLAN_PRESENT } if value != 0 => {
                Ok(FieldMatch::exact(OxmField::VlanVid, value))
            }
            one if one.is_exact() => Ok(one),
            FieldMatch { field, .. } => {
                Err(Word::new(field.name()).wrong("a packet has one value: leave the mask out"))
            }
        };
        let fields = found.fields().iter().map(one_value).collect::<Result<Vec<_>, _>>()?;
        headers.fields = Match::new(fields).map_err(|error| Word::new(text).wrong(error.to_string()))?;
        Ok(headers)
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut words = MatchText(&self.fields).to_string();
        let ttls = [("nw_ttl", self.nw_ttl), ("mpls_ttl", self.mpls_ttl)];
        for (name, ttl) in ttls.into_iter().filter_map(|(name, ttl)| Some((name, ttl?))) {
            words.push_str(&format!("{name}={ttl},"));
        }
        f.write_str(words.trim_end_matches(','))
    }
}
