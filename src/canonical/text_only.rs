//! Takes a string out of a `Serialize` value and refuses everything else: for map keys, and for the text inside
//! serde_json's own `Number` and `RawValue`.

use serde::ser::{Impossible, Serialize, Serializer};

use super::error::{CanonicalError, Result};
use super::number;
use super::parse;
use super::writer::{ObjectFrame, Writer};

/// What the string is for.
pub(super) enum Role<'f> {
    /// A key of this object.
    Key(&'f mut ObjectFrame),
    /// The text of a number.
    Number,
    /// The text of any JSON value.
    Raw,
}

pub(super) struct TextOnly<'w, 'f> {
    pub(super) writer: &'w mut Writer,
    pub(super) role: Role<'f>,
}

impl TextOnly<'_, '_> {
    fn refuse<T>(self) -> Result<T> {
        Err(match self.role {
            Role::Key(_) => Box::new(CanonicalError::KeyNotString),
            Role::Number | Role::Raw => CanonicalError::serialize("a JSON text is not a string"),
        })
    }
}

type Never = Impossible<(), Box<CanonicalError>>;

macro_rules! refused {
    ($($method:ident($($argument:ty),*) -> $ok:ty;)*) => {
        $(fn $method(self, $(_: $argument),*) -> Result<$ok> { self.refuse() })*
    };
}

impl Serializer for TextOnly<'_, '_> {
    type Ok = ();
    type Error = Box<CanonicalError>;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Never;
    type SerializeStructVariant = Never;

    #[inline]
    fn serialize_str(self, text: &str) -> Result<()> {
        match self.role {
            Role::Key(frame) => self.writer.key(frame, text),
            Role::Number => self.writer.number(number::from_text(text)?),
            Role::Raw => parse::write_text(self.writer, text),
        }
    }

    fn serialize_char(self, value: char) -> Result<()> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    refused! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_i128(i128) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_u128(u128) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_seq(Option<usize>) -> Never;
        serialize_tuple(usize) -> Never;
        serialize_tuple_struct(&'static str, usize) -> Never;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Never;
        serialize_map(Option<usize>) -> Never;
        serialize_struct(&'static str, usize) -> Never;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Never;
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<()> {
        self.refuse()
    }
}
