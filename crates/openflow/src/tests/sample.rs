//! Strategies for any value of each type that messages consist of.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

use crate::message::{Hello, MeterBand, PacketOut, PropertyEntries, QueueProperty, TableProperty};
use crate::oxm::{OxmId, Prerequisite, VLAN_PRESENT};
use crate::{Action, ErrorCode, FieldMatch, FieldValue, Instructions, Match, OxmField, PortNo, Text};

pub(crate) trait Sample: Sized + std::fmt::Debug + 'static {
    fn sample() -> BoxedStrategy<Self>;
}

macro_rules! sample_struct {
    ($name:ident { $( $field:ident: $type:ty ),* $(,)? }) => {
        impl $crate::tests::sample::Sample for $name {
            fn sample() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::{Just, Strategy};
                // The tuples are nested, because there are more fields than a tuple may have.
                let all = Just(());
                $( let all = (all, <$type as $crate::tests::sample::Sample>::sample()); )*
                all.prop_map(|fields| $crate::tests::sample::built!(fields, $name, [] $( $field )*)).boxed()
            }
        }
    };
}
pub(crate) use sample_struct;

/// Unpacks the fields from nested pairs: the last field is outermost.
macro_rules! built {
    ($fields:expr, $name:ident, [$( $reversed:ident )*] $first:ident $( $rest:ident )*) => {
        $crate::tests::sample::built!($fields, $name, [$first $( $reversed )*] $( $rest )*)
    };
    ($fields:expr, $name:ident, [$( $reversed:ident )*]) => {{
        let rest = $fields;
        $( let (rest, $reversed) = rest; )*
        let () = rest;
        $name { $( $reversed, )* }
    }};
}
pub(crate) use built;

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Sample for $type {
            fn sample() -> BoxedStrategy<Self> {
                any::<Self>().boxed()
            }
        }
    )*};
}
numbers!(bool u8 u16 u32 u64 [u8; 6] [u32; 2] [u32; 4]);

impl Sample for Option<u32> {
    fn sample() -> BoxedStrategy<Self> {
        option::of(0..u32::MAX).boxed()
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample() -> BoxedStrategy<Self> {
        vec(T::sample(), 0..4).boxed()
    }
}

impl<T: Sample> Sample for Box<T> {
    fn sample() -> BoxedStrategy<Self> {
        T::sample().prop_map(Box::new).boxed()
    }
}

impl<const N: usize> Sample for Text<N> {
    fn sample() -> BoxedStrategy<Self> {
        ".{0,40}".prop_map(|text| Self::new(&text)).boxed()
    }
}

/// Strategy for one of these values, or for any value if there are none.
pub(crate) fn one_of<T: Sample + Clone>(values: &[T]) -> BoxedStrategy<T> {
    if values.is_empty() { T::sample() } else { select(values.to_vec()).boxed() }
}

impl Sample for PortNo {
    fn sample() -> BoxedStrategy<Self> {
        let reserved = select(&Self::RESERVED[..]).prop_map(|(port, _)| port);
        prop_oneof![(1u32..300).prop_map(Self), any::<u32>().prop_map(Self), reserved, Just(Self::MAX)]
            .boxed()
    }
}

impl Sample for ErrorCode {
    fn sample() -> BoxedStrategy<Self> {
        prop_oneof![
            select(Self::ALL),
            (any::<u16>(), any::<u16>()).prop_map(|(kind, code)| Self { kind, code })
        ]
        .boxed()
    }
}

impl Sample for OxmId {
    fn sample() -> BoxedStrategy<Self> {
        let ours = (select(&OxmField::ALL[..]), any::<bool>()).prop_map(|(field, masked)| field.id(masked));
        let foreign =
            any::<u16>().prop_map(|low| Self { header: 0xffff_0000 | u32::from(low), experimenter: Some(7) });
        prop_oneof![ours, foreign].boxed()
    }
}

fn sample_value(field: OxmField) -> BoxedStrategy<u128> {
    match field {
        OxmField::VlanVid => (VLAN_PRESENT..2 * VLAN_PRESENT).boxed(),
        OxmField::InPort | OxmField::InPhyPort => (1u128..1000).boxed(),
        _ => any::<u128>().prop_map(move |bits| bits & field.all_ones()).boxed(),
    }
}

impl Sample for FieldValue {
    fn sample() -> BoxedStrategy<Self> {
        select(&OxmField::ALL[..])
            .prop_filter("it can be set", |field| {
                !matches!(field, OxmField::InPort | OxmField::InPhyPort | OxmField::Metadata)
            })
            .prop_flat_map(|field| sample_value(field).prop_map(move |value| Self { field, value }))
            .boxed()
    }
}

fn sample_field_match(field: OxmField) -> impl Strategy<Value = FieldMatch> {
    // Masks: all bits, a prefix, or any bits.
    let bits = field.all_ones();
    let mask = prop_oneof![
        Just(bits),
        (1..=field.bits()).prop_map(move |prefix| bits << (field.bits() - prefix) & bits),
        any::<u128>().prop_map(move |mask| mask & bits | 1),
    ];
    (sample_value(field), mask).prop_map(move |(value, mask)| {
        let mask = if field.is_maskable() { mask } else { bits };
        FieldMatch { field, value: value & mask, mask }
    })
}

/// Adds the prerequisites of the fields, and removes contradicting fields.
pub(crate) fn with_prerequisites(wanted: Vec<FieldMatch>) -> Match {
    let mut fields: Vec<FieldMatch> = Vec::new();
    let mut queue = wanted;
    queue.reverse();
    while let Some(next) = queue.pop() {
        if fields.iter().any(|known| known.field == next.field) {
            continue;
        }
        fields.push(next);
        for needed in next.field.prerequisites() {
            queue.push(match needed {
                Prerequisite::Matched(field) => FieldMatch::exact(*field, 1),
                Prerequisite::OneOf(field, values) => FieldMatch::exact(*field, values[0]),
                Prerequisite::Tagged => {
                    FieldMatch { field: OxmField::VlanVid, value: VLAN_PRESENT, mask: VLAN_PRESENT }
                }
            });
        }
    }
    // Contradicting fields are removed from the end until the match is valid.
    loop {
        match Match::new(fields.iter().copied()) {
            Ok(built) => return built,
            Err(_) => {
                let all = fields.clone();
                fields.retain(|field| {
                    field.field.prerequisites().iter().all(|needed| match needed {
                        Prerequisite::Matched(other) => all.iter().any(|known| known.field == *other),
                        Prerequisite::OneOf(other, values) => all.iter().any(|known| {
                            known.field == *other && known.is_exact() && values.contains(&known.value)
                        }),
                        Prerequisite::Tagged => all
                            .iter()
                            .any(|known| known.field == OxmField::VlanVid && known.value & VLAN_PRESENT != 0),
                    })
                });
                assert!(fields.len() < all.len(), "{all:?}");
            }
        }
    }
}

impl Sample for Match {
    fn sample() -> BoxedStrategy<Self> {
        vec(select(&OxmField::ALL[..]).prop_flat_map(sample_field_match), 0..6)
            .prop_map(with_prerequisites)
            .boxed()
    }
}

impl Sample for Instructions {
    fn sample() -> BoxedStrategy<Self> {
        (
            option::of(any::<u32>()),
            option::of(Vec::<Action>::sample()),
            any::<bool>(),
            option::of(Vec::<Action>::sample()),
            option::of(any::<(u64, u64)>()),
            option::of(any::<u8>()),
        )
            .prop_map(|(meter, apply, clear, write, metadata, goto)| Self {
                meter,
                apply,
                clear,
                write,
                metadata,
                goto,
            })
            .boxed()
    }
}

impl Sample for Hello {
    fn sample() -> BoxedStrategy<Self> {
        (any::<u8>(), option::of(Vec::<u32>::sample()))
            .prop_map(|(version, bitmap)| Self { version, bitmap })
            .boxed()
    }
}

impl Sample for MeterBand {
    fn sample() -> BoxedStrategy<Self> {
        let drop = any::<(u32, u32)>().prop_map(|(rate, burst)| Self::Drop { rate, burst });
        let remark = any::<(u32, u32, u8)>().prop_map(|(rate, burst, levels)| Self::DscpRemark {
            rate,
            burst,
            levels,
        });
        prop_oneof![drop, remark].boxed()
    }
}

impl Sample for QueueProperty {
    fn sample() -> BoxedStrategy<Self> {
        prop_oneof![
            any::<u16>().prop_map(Self::MinRate),
            any::<u16>().prop_map(Self::MaxRate),
            (any::<u32>(), Vec::<u8>::sample())
                .prop_map(|(experimenter, data)| Self::Experimenter { experimenter, data }),
        ]
        .boxed()
    }
}

impl Sample for TableProperty {
    fn sample() -> BoxedStrategy<Self> {
        let side = || select(vec![PropertyEntries::Entries, PropertyEntries::Miss]);
        let ids = Vec::<u16>::sample;
        let fields = Vec::<OxmId>::sample;
        Union::new([
            (side(), ids()).prop_map(|(side, ids)| Self::Instructions(side, ids)).boxed(),
            (side(), Vec::<u8>::sample()).prop_map(|(side, tables)| Self::NextTables(side, tables)).boxed(),
            (side(), ids()).prop_map(|(side, ids)| Self::WriteActions(side, ids)).boxed(),
            (side(), ids()).prop_map(|(side, ids)| Self::ApplyActions(side, ids)).boxed(),
            fields().prop_map(Self::Match).boxed(),
            fields().prop_map(Self::Wildcards).boxed(),
            (side(), fields()).prop_map(|(side, ids)| Self::WriteSetField(side, ids)).boxed(),
            (side(), fields()).prop_map(|(side, ids)| Self::ApplySetField(side, ids)).boxed(),
        ])
        .boxed()
    }
}

sample_struct!(PacketOut { buffer_id: Option<u32>, in_port: PortNo, actions: Vec<Action>, data: Vec<u8>, });
