//! The messages of memif's control socket (memif.h of libmemif and of DPDK, version 2.0): 128 bytes each, packed, in
//! the byte order of the host. A message has a type of two bytes and the fields of its type.

/// Length of each message, bytes.
pub const MESSAGE_BYTES: usize = 128;
/// Version of the protocol, major and minor.
pub const VERSION: u16 = 0x0200;
/// Length of the field for a program's or an interface's name.
pub const NAME_BYTES: usize = 32;
/// Length of the field for a secret, bytes.
pub const SECRET_BYTES: usize = 24;
/// Length of the field for the reason of a disconnect, bytes. The last byte is NUL.
pub const REASON_BYTES: usize = 96;
/// Mode of an interface that carries Ethernet frames (`MEMIF_INTERFACE_MODE_ETHERNET`).
pub const MODE_ETHERNET: u8 = 0;

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;
/// `MEMIF_MSG_ADD_RING_FLAG_S2M`: frames go to the server.
const TO_SERVER: u16 = 1;

/// Limits that a server sends to every client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemifHello {
    /// Name of the program.
    pub name: String,
    /// Oldest version that the server speaks.
    pub min_version: u16,
    /// Newest version that the server speaks.
    pub max_version: u16,
    /// Highest number of a region.
    pub max_region: u16,
    /// Highest number of a ring to the client.
    pub max_ring_to_client: u16,
    /// Highest number of a ring to the server.
    pub max_ring_to_server: u16,
    /// Maximum number of descriptors of a ring, as the exponent of a power of two.
    pub max_log2_ring_size: u8,
}

/// Request of a client for an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Init {
    /// Version that the client speaks.
    pub version: u16,
    /// Number of the interface.
    pub id: u32,
    /// Mode of the interface ([`MODE_ETHERNET`]).
    pub mode: u8,
    /// The secret, up to the first NUL.
    pub secret: Vec<u8>,
    /// Name of the program.
    pub name: String,
}

/// A region of shared memory, whose descriptor comes with the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddRegion {
    /// Number of the region: the next free one.
    pub index: u16,
    /// Size of the region, bytes.
    pub bytes: u64,
}

/// A ring in a region. The eventfd of its receiver comes with the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddRing {
    /// Whether the ring carries frames from the client to the server.
    pub to_server: bool,
    /// Number of the ring among those of its direction.
    pub index: u16,
    /// Number of the region in which the ring lies.
    pub region: u16,
    /// Offset of the ring in the region, bytes.
    pub offset: u32,
    /// Number of descriptors, as the exponent of a power of two.
    pub log2_size: u8,
    /// Length of a private header in front of each frame, bytes.
    pub private_header_bytes: u16,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemifMessage {
    /// The last message was understood.
    Ack,
    /// First message of a server.
    Hello(MemifHello),
    /// First message of a client.
    Init(Init),
    /// A region of the client's memory.
    AddRegion(AddRegion),
    /// A ring of the client.
    AddRing(AddRing),
    /// The client's setup is complete. Its interface has this name.
    Connect(String),
    /// The server accepts the connection. Its interface has this name.
    Connected(String),
    /// The sender ends the connection.
    Disconnect {
        /// Number without a specified meaning.
        code: u32,
        /// Reason, as text for users.
        reason: String,
    },
}

impl MemifMessage {
    /// Reads a message.
    ///
    /// # Errors
    /// The problem, as text for users.
    pub fn parse(bytes: &[u8; MESSAGE_BYTES]) -> Result<Self, String> {
        let body = Body(bytes);
        Ok(match body.u16(0) {
            ACK => Self::Ack,
            HELLO => Self::Hello(MemifHello {
                name: body.text(2, NAME_BYTES),
                min_version: body.u16(34),
                max_version: body.u16(36),
                max_region: body.u16(38),
                max_ring_to_client: body.u16(40),
                max_ring_to_server: body.u16(42),
                max_log2_ring_size: body.part::<1>(44)[0],
            }),
            INIT => Self::Init(Init {
                version: body.u16(2),
                id: body.u32(4),
                mode: body.part::<1>(8)[0],
                secret: body.until_nul(9, SECRET_BYTES).to_vec(),
                name: body.text(33, NAME_BYTES),
            }),
            ADD_REGION => {
                Self::AddRegion(AddRegion { index: body.u16(2), bytes: u64::from_ne_bytes(body.part(4)) })
            }
            ADD_RING => Self::AddRing(AddRing {
                to_server: body.u16(2) & TO_SERVER != 0,
                index: body.u16(4),
                region: body.u16(6),
                offset: body.u32(8),
                log2_size: body.part::<1>(12)[0],
                private_header_bytes: body.u16(13),
            }),
            CONNECT => Self::Connect(body.text(2, NAME_BYTES)),
            CONNECTED => Self::Connected(body.text(2, NAME_BYTES)),
            DISCONNECT => Self::Disconnect { code: body.u32(2), reason: body.text(6, REASON_BYTES) },
            other => return Err(format!("message type {other} is unknown")),
        })
    }

    /// Writes a message. Texts too long for their field are truncated.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut put = |at: usize, part: &[u8]| {
            for (target, byte) in bytes.iter_mut().skip(at).zip(part) {
                *target = *byte;
            }
        };
        let kind = match self {
            Self::Ack => ACK,
            Self::Hello(hello) => {
                put(2, text(&hello.name, NAME_BYTES));
                put(34, &hello.min_version.to_ne_bytes());
                put(36, &hello.max_version.to_ne_bytes());
                put(38, &hello.max_region.to_ne_bytes());
                put(40, &hello.max_ring_to_client.to_ne_bytes());
                put(42, &hello.max_ring_to_server.to_ne_bytes());
                put(44, &[hello.max_log2_ring_size]);
                HELLO
            }
            Self::Init(init) => {
                put(2, &init.version.to_ne_bytes());
                put(4, &init.id.to_ne_bytes());
                put(8, &[init.mode]);
                put(9, init.secret.get(..SECRET_BYTES).unwrap_or(&init.secret));
                put(33, text(&init.name, NAME_BYTES));
                INIT
            }
            Self::AddRegion(region) => {
                put(2, &region.index.to_ne_bytes());
                put(4, &region.bytes.to_ne_bytes());
                ADD_REGION
            }
            Self::AddRing(ring) => {
                put(2, &(if ring.to_server { TO_SERVER } else { 0 }).to_ne_bytes());
                put(4, &ring.index.to_ne_bytes());
                put(6, &ring.region.to_ne_bytes());
                put(8, &ring.offset.to_ne_bytes());
                put(12, &[ring.log2_size]);
                put(13, &ring.private_header_bytes.to_ne_bytes());
                ADD_RING
            }
            Self::Connect(name) => {
                put(2, text(name, NAME_BYTES));
                CONNECT
            }
            Self::Connected(name) => {
                put(2, text(name, NAME_BYTES));
                CONNECTED
            }
            Self::Disconnect { code, reason } => {
                put(2, &code.to_ne_bytes());
                put(6, text(reason, REASON_BYTES));
                DISCONNECT
            }
        };
        put(0, &kind.to_ne_bytes());
        bytes
    }
}

/// Prefix of `text` in whole characters that fits before a NUL.
fn text(text: &str, field_bytes: usize) -> &[u8] {
    text.get(..text.floor_char_boundary(field_bytes - 1)).unwrap_or(text).as_bytes()
}

/// The bytes of a message. All offsets passed to its methods are constants within it.
struct Body<'message>(&'message [u8; MESSAGE_BYTES]);

impl Body<'_> {
    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.part(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.part(at))
    }

    fn until_nul(&self, at: usize, bytes: usize) -> &[u8] {
        let field = self.0.get(at..at + bytes).unwrap_or(&[]);
        field.split(|&byte| byte == 0).next().unwrap_or(&[])
    }

    /// Text for users. Unprintable characters are replaced by the replacement character.
    fn text(&self, at: usize, bytes: usize) -> String {
        let text = String::from_utf8_lossy(self.until_nul(at, bytes));
        text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_those_of_memif_h() {
        let ring = AddRing {
            to_server: true,
            index: 0x0102,
            region: 3,
            offset: 0x0A0B_0C0D,
            log2_size: 10,
            private_header_bytes: 0x1112,
        };
        let bytes = MemifMessage::AddRing(ring).to_bytes();
        let expected = [5, 0, 1, 0, 2, 1, 3, 0, 0x0D, 0x0C, 0x0B, 0x0A, 10, 0x12, 0x11];
        assert_eq!(bytes[..15], expected);
        let init = Init { version: VERSION, id: 7, mode: 0, secret: b"sesame".to_vec(), name: "me".into() };
        let bytes = MemifMessage::Init(init).to_bytes();
        assert_eq!(bytes[..9], [3, 0, 0, 2, 7, 0, 0, 0, 0]);
        assert_eq!((&bytes[9..16], &bytes[33..36]), (&b"sesame\0"[..], &b"me\0"[..]));
    }

    #[test]
    fn texts_too_long_are_cut_at_a_character() {
        let reason = "é".repeat(60);
        let bytes = MemifMessage::Disconnect { code: 0, reason }.to_bytes();
        assert_eq!(bytes[101], 0);
        let Ok(MemifMessage::Disconnect { reason, .. }) = MemifMessage::parse(&bytes) else {
            panic!("no disconnect")
        };
        assert_eq!(reason, "é".repeat(47));
    }

    proptest! {
        #[test]
        fn messages_read_from_any_bytes_survive_writing_and_reading(
            kind in 0u16..10,
            rest in prop::collection::vec(any::<u8>(), MESSAGE_BYTES - 2),
        ) {
            let mut bytes = [0; MESSAGE_BYTES];
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            bytes[2..].copy_from_slice(&rest);
            if let Ok(message) = MemifMessage::parse(&bytes) {
                let again = MemifMessage::parse(&message.to_bytes());
                // Replaced characters take more bytes, so a text may be truncated once.
                prop_assert_eq!(again.clone(), MemifMessage::parse(&again.unwrap().to_bytes()));
            } else {
                prop_assert!(kind == 0 || kind > 8);
            }
        }
    }
}
