//! Messages as trees of fields. What the protocol's own types would never hold can be put into
//! each, and the bytes that come of it are sent.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use serde::ser::{self, Serialize};

/// A value as it is encoded: postcard's rules (docs/wire.md, "Messages").
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Flag(u8),
    Byte(u8),
    Unsigned(u128, u32),
    Signed(i128, u32),
    Bytes(Vec<u8>),
    Option(Option<Box<Node>>),
    List(Vec<Node>),
    Parts(Vec<(String, Node)>),
    Variant(u128, Vec<(String, Node)>),
}

impl Node {
    pub fn of<T: Serialize>(value: &T) -> Node {
        value.serialize(Recorder).expect("messages can be recorded")
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Node::Flag(byte) | Node::Byte(byte) => out.push(*byte),
            Node::Unsigned(value, _) => varint(*value, out),
            Node::Signed(value, bits) => {
                let folded = (value << 1) ^ (value >> 127);
                varint(folded as u128 & mask(*bits + 1), out);
            }
            Node::Bytes(bytes) => {
                varint(bytes.len() as u128, out);
                out.extend(bytes);
            }
            Node::Option(None) => out.push(0),
            Node::Option(Some(inner)) => {
                out.push(1);
                inner.encode(out);
            }
            Node::List(all) => {
                varint(all.len() as u128, out);
                all.iter().for_each(|one| one.encode(out));
            }
            Node::Parts(parts) => parts.iter().for_each(|(_, part)| part.encode(out)),
            Node::Variant(index, parts) => {
                varint(*index, out);
                parts.iter().for_each(|(_, part)| part.encode(out));
            }
        }
    }

    /// The names of all fields, outermost first, as in `ticket.open_epoch`.
    pub fn fields(&self) -> Vec<String> {
        let mut found = vec![String::new()];
        let mut below = |name: &str, node: &Node| {
            let inner = node.fields().into_iter();
            found.extend(inner.map(|rest| match rest.is_empty() {
                true => name.to_owned(),
                false => format!("{name}.{rest}"),
            }));
        };
        match self {
            Node::Parts(parts) | Node::Variant(_, parts) => {
                parts.iter().for_each(|(name, part)| below(name, part));
            }
            Node::Option(Some(inner)) => below("some", inner),
            Node::List(all) => {
                let first = all.first();
                first.into_iter().for_each(|one| below("0", one));
            }
            _ => {}
        }
        found
    }

    pub fn at(&mut self, path: &str) -> Option<&mut Node> {
        if path.is_empty() {
            return Some(self);
        }
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        let part = match self {
            Node::Parts(parts) | Node::Variant(_, parts) => {
                let found = parts.iter_mut().find(|(known, _)| known == name);
                found.map(|(_, part)| part)
            }
            Node::Option(Some(inner)) if name == "some" => Some(&mut **inner),
            Node::List(all) => all.get_mut(name.parse::<usize>().ok()?),
            _ => None,
        };
        part?.at(rest)
    }

    /// What this field could be at its borders, and beyond them.
    pub fn borders(&self) -> Vec<Node> {
        match self {
            Node::Flag(_) => vec![Node::Flag(0), Node::Flag(1), Node::Flag(2), Node::Flag(255)],
            Node::Byte(_) => [0, 1, 2, 3, 31, 127, 128, 255].map(Node::Byte).to_vec(),
            Node::Unsigned(value, bits) => {
                let of_type = [mask(*bits), mask(*bits) - 1, 1 << (bits - 1), 1 << *bits];
                let of_files = [(1 << 63) - 1, (1 << 63) - (1 << 20), 1 << 60, 1 << 44];
                let small = [0, 1, 999_999_999, 1_000_000_000, value + 1];
                // Beyond its type one value is as good as another.
                let all = small.into_iter().chain(of_type).chain(of_files);
                let all: BTreeSet<u128> = all.map(|value: u128| value.min(1 << *bits)).collect();
                let all = all.into_iter();
                all.map(|value| Node::Unsigned(value, *bits)).collect()
            }
            Node::Signed(_, bits) => {
                let most = mask(bits - 1) as i128;
                let all = [0, 1, -1, most, -most - 1, most + 1];
                all.map(|value| Node::Signed(value, *bits)).to_vec()
            }
            Node::Bytes(bytes) => {
                let longer = |count| bytes.iter().copied().cycle().take(count).collect();
                let mut all: Vec<Vec<u8>> = vec![
                    Vec::new(),
                    b".".to_vec(),
                    b"..".to_vec(),
                    b"a/b".to_vec(),
                    vec![0],
                    vec![0xff, 0xfe],
                    b"line\nERROR forged \x1b[2J".to_vec(),
                ];
                if !bytes.is_empty() {
                    all.extend([255, 256, 4096, 65_536, 65_537, 300_000].map(longer));
                }
                all.into_iter().map(Node::Bytes).collect()
            }
            Node::Option(inner) => {
                let mut all = vec![Node::Option(None)];
                all.extend(inner.is_none().then_some(Node::Flag(2)));
                all
            }
            Node::List(all) => {
                let mut many = vec![Node::List(Vec::new())];
                if let Some(one) = all.first() {
                    for count in [2, 129, 5000] {
                        many.push(Node::List(vec![one.clone(); count]));
                    }
                }
                many
            }
            Node::Parts(_) => Vec::new(),
            Node::Variant(_, parts) => {
                let other = [0, 1, 2, 7, 200, u128::from(u32::MAX), 1 << 32];
                other
                    .map(|index| Node::Variant(index, parts.clone()))
                    .to_vec()
            }
        }
    }
}

fn mask(bits: u32) -> u128 {
    if bits >= 128 {
        u128::MAX
    } else {
        (1 << bits) - 1
    }
}

fn varint(mut value: u128, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[derive(Debug)]
pub struct CannotRecord(String);

impl Display for CannotRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotRecord {}

impl ser::Error for CannotRecord {
    fn custom<T: Display>(reason: T) -> CannotRecord {
        CannotRecord(reason.to_string())
    }
}

type Recorded = Result<Node, CannotRecord>;

struct Recorder;

/// Fields of something that has several.
struct Fields {
    variant: Option<u32>,
    is_list: bool,
    parts: Vec<(String, Node)>,
}

impl Fields {
    fn new(variant: Option<u32>) -> Fields {
        Fields {
            variant,
            is_list: false,
            parts: Vec::new(),
        }
    }

    fn push<T: Serialize + ?Sized>(
        &mut self,
        name: Option<&str>,
        value: &T,
    ) -> Result<(), CannotRecord> {
        let name = name.map_or_else(|| self.parts.len().to_string(), str::to_owned);
        self.parts.push((name, value.serialize(Recorder)?));
        Ok(())
    }

    fn done(self) -> Recorded {
        Ok(match (self.variant, self.is_list) {
            (Some(index), _) => Node::Variant(index.into(), self.parts),
            (None, true) => Node::List(self.parts.into_iter().map(|(_, part)| part).collect()),
            (None, false) => Node::Parts(self.parts),
        })
    }
}

macro_rules! compound {
    ($($name:ident: $method:ident($($key:ident)?)),* $(,)?) => {$(
        impl ser::$name for Fields {
            type Ok = Node;
            type Error = CannotRecord;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: &'static str,)?
                value: &T,
            ) -> Result<(), CannotRecord> {
                let name: Option<&str> = None;
                $(let name = name.or(Some($key));)?
                self.push(name, value)
            }

            fn end(self) -> Recorded {
                self.done()
            }
        }
    )*};
}

compound! {
    SerializeSeq: serialize_element(),
    SerializeTuple: serialize_element(),
    SerializeTupleStruct: serialize_field(),
    SerializeTupleVariant: serialize_field(),
    SerializeStruct: serialize_field(key),
    SerializeStructVariant: serialize_field(key),
}

macro_rules! numbers {
    ($($method:ident($type:ty) => $node:ident $bits:expr),* $(,)?) => {$(
        fn $method(self, value: $type) -> Recorded {
            Ok(Node::$node(value.into(), $bits))
        }
    )*};
}

impl ser::Serializer for Recorder {
    type Ok = Node;
    type Error = CannotRecord;
    type SerializeSeq = Fields;
    type SerializeTuple = Fields;
    type SerializeTupleStruct = Fields;
    type SerializeTupleVariant = Fields;
    type SerializeMap = ser::Impossible<Node, CannotRecord>;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Fields;

    numbers! {
        serialize_u16(u16) => Unsigned 16,
        serialize_u32(u32) => Unsigned 32,
        serialize_u64(u64) => Unsigned 64,
        serialize_i16(i16) => Signed 16,
        serialize_i32(i32) => Signed 32,
        serialize_i64(i64) => Signed 64,
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, value: bool) -> Recorded {
        Ok(Node::Flag(value.into()))
    }

    fn serialize_u8(self, value: u8) -> Recorded {
        Ok(Node::Byte(value))
    }

    fn serialize_i8(self, value: i8) -> Recorded {
        Ok(Node::Byte(value as u8))
    }

    fn serialize_f32(self, _: f32) -> Recorded {
        Err(ser::Error::custom("no message has fractions"))
    }

    fn serialize_f64(self, _: f64) -> Recorded {
        Err(ser::Error::custom("no message has fractions"))
    }

    fn serialize_char(self, value: char) -> Recorded {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Recorded {
        self.serialize_bytes(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Recorded {
        Ok(Node::Bytes(value.to_vec()))
    }

    fn serialize_none(self) -> Recorded {
        Ok(Node::Option(None))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Recorded {
        Ok(Node::Option(Some(Box::new(value.serialize(Recorder)?))))
    }

    fn serialize_unit(self) -> Recorded {
        Ok(Node::Parts(Vec::new()))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Recorded {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Recorded {
        Ok(Node::Variant(index.into(), Vec::new()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Recorded {
        value.serialize(Recorder)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Recorded {
        let part = ("0".to_owned(), value.serialize(Recorder)?);
        Ok(Node::Variant(index.into(), vec![part]))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Fields, CannotRecord> {
        Ok(Fields {
            is_list: true,
            ..Fields::new(None)
        })
    }

    fn serialize_tuple(self, _: usize) -> Result<Fields, CannotRecord> {
        Ok(Fields::new(None))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Fields, CannotRecord> {
        Ok(Fields::new(None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fields, CannotRecord> {
        Ok(Fields::new(Some(index)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, CannotRecord> {
        Err(ser::Error::custom("no message has maps"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields, CannotRecord> {
        Ok(Fields::new(None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fields, CannotRecord> {
        Ok(Fields::new(Some(index)))
    }
}
