//! Canonical text from a `Serialize` value, in the same data model as serde_json: enums externally tagged, `None` and
//! unit as null, bytes as an array of numbers.
//!
//! It differs from serde_json where that would hide something from the reviewer or the fingerprint: numbers that are
//! not finite are refused instead of becoming null, keys that are not strings are refused instead of being printed,
//! and a key that comes twice (from a hand-written `Serialize` or a `flatten`) is refused.
//!
//! Two struct names are serde_json's own and carry JSON text in their only field: `Number` under its feature
//! `arbitrary_precision`, and `RawValue`. They are recognised by the struct's name whatever features this crate was
//! built with, since a host may switch them on; a key of that name in a map or a JSON text is an ordinary key.

use serde::ser::{self, Serialize, Serializer};

use super::error::{CanonicalError, Result};
use super::number::{self, Number};
use super::text_only::{Role, TextOnly};
use super::writer::{ObjectFrame, Writer};

const NUMBER_STRUCT: &str = "$serde_json::private::Number";
const RAW_VALUE_STRUCT: &str = "$serde_json::private::RawValue";

/// Writes one value. An error is also recorded in the writer, so a caller that swallows it gains nothing.
pub(super) fn write_value<T: Serialize + ?Sized>(writer: &mut Writer, value: &T) -> Result<()> {
    value.serialize(ValueSerializer { writer: &mut *writer }).map_err(|error| writer.fail(error))
}

struct ValueSerializer<'w> {
    writer: &'w mut Writer,
}

/// The object around an enum variant's content: `{"Variant":content}`.
type Wrapper = Option<ObjectFrame>;

impl<'w> ValueSerializer<'w> {
    fn open_variant(&mut self, variant: &str) -> Result<ObjectFrame> {
        let mut wrapper = self.writer.open_object()?;
        self.writer.key(&mut wrapper, variant)?;
        Ok(wrapper)
    }

    fn open_array(self, wrapper: Wrapper) -> Result<ArraySerializer<'w>> {
        self.writer.open_array()?;
        Ok(ArraySerializer { writer: self.writer, empty: true, wrapper })
    }

    fn open_object(self, wrapper: Wrapper) -> Result<ObjectSerializer<'w>> {
        let frame = self.writer.open_object()?;
        Ok(ObjectSerializer { writer: self.writer, frame, key_waits: false, wrapper })
    }
}

impl<'w> Serializer for ValueSerializer<'w> {
    type Ok = ();
    type Error = Box<CanonicalError>;
    type SerializeSeq = ArraySerializer<'w>;
    type SerializeTuple = ArraySerializer<'w>;
    type SerializeTupleStruct = ArraySerializer<'w>;
    type SerializeTupleVariant = ArraySerializer<'w>;
    type SerializeMap = ObjectSerializer<'w>;
    type SerializeStruct = StructSerializer<'w>;
    type SerializeStructVariant = StructSerializer<'w>;

    fn serialize_bool(self, value: bool) -> Result<()> {
        self.writer.literal(if value { "true" } else { "false" })
    }

    fn serialize_i8(self, value: i8) -> Result<()> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<()> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<()> {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<()> {
        self.writer.number(Number::Signed(value))
    }

    fn serialize_i128(self, value: i128) -> Result<()> {
        if let Ok(value) = i64::try_from(value) {
            self.serialize_i64(value)
        } else if let Ok(value) = u64::try_from(value) {
            self.serialize_u64(value)
        } else {
            Err(CanonicalError::integer_out_of_range(&value.to_string()))
        }
    }

    fn serialize_u8(self, value: u8) -> Result<()> {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<()> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<()> {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<()> {
        self.writer.number(Number::Unsigned(value))
    }

    fn serialize_u128(self, value: u128) -> Result<()> {
        match u64::try_from(value) {
            Ok(value) => self.serialize_u64(value),
            Err(_) => Err(CanonicalError::integer_out_of_range(&value.to_string())),
        }
    }

    /// The exact value, widened. That is what `serde_json::to_value` makes of an `f32` and what JavaScript prints for
    /// one; serde_json's `to_string` prints the shorter decimal that only an `f32` reader takes back to this value,
    /// and a payload here is read back as doubles. So a type and its `to_value` have one fingerprint, and an `f32`
    /// never shares one with a double of another value.
    fn serialize_f32(self, value: f32) -> Result<()> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<()> {
        self.writer.number(number::from_f64(value)?)
    }

    fn serialize_char(self, value: char) -> Result<()> {
        self.writer.string(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<()> {
        self.writer.string(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<()> {
        use ser::SerializeSeq as _;
        let mut array = self.open_array(None)?;
        for byte in value {
            array.serialize_element(byte)?;
        }
        ser::SerializeSeq::end(array)
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.writer.literal("null")
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        let wrapper = self.open_variant(variant)?;
        write_value(self.writer, value)?;
        self.writer.close_object(wrapper)
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<ArraySerializer<'w>> {
        self.open_array(None)
    }

    fn serialize_tuple(self, _len: usize) -> Result<ArraySerializer<'w>> {
        self.open_array(None)
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<ArraySerializer<'w>> {
        self.open_array(None)
    }

    fn serialize_tuple_variant(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<ArraySerializer<'w>> {
        let wrapper = self.open_variant(variant)?;
        self.open_array(Some(wrapper))
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<ObjectSerializer<'w>> {
        self.open_object(None)
    }

    fn serialize_struct(self, name: &'static str, _len: usize) -> Result<StructSerializer<'w>> {
        let role = match name {
            NUMBER_STRUCT => Role::Number,
            RAW_VALUE_STRUCT => Role::Raw,
            _ => return self.open_object(None).map(StructSerializer::Object),
        };
        Ok(StructSerializer::JsonText { writer: self.writer, name, role: Some(role) })
    }

    fn serialize_struct_variant(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<StructSerializer<'w>> {
        let wrapper = self.open_variant(variant)?;
        self.open_object(Some(wrapper)).map(StructSerializer::Object)
    }
}

pub(super) struct ArraySerializer<'w> {
    writer: &'w mut Writer,
    empty: bool,
    wrapper: Wrapper,
}

impl ArraySerializer<'_> {
    #[inline]
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        if !self.empty {
            self.writer.separator();
        }
        self.empty = false;
        write_value(self.writer, value)
    }

    #[inline]
    fn close(self) -> Result<()> {
        self.writer.close_array();
        self.wrapper.map_or(Ok(()), |wrapper| self.writer.close_object(wrapper))
    }
}

macro_rules! array {
    ($trait:ident, $method:ident) => {
        impl ser::$trait for ArraySerializer<'_> {
            type Ok = ();
            type Error = Box<CanonicalError>;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.element(value)
            }

            fn end(self) -> Result<()> {
                self.close()
            }
        }
    };
}

array!(SerializeSeq, serialize_element);
array!(SerializeTuple, serialize_element);
array!(SerializeTupleStruct, serialize_field);
array!(SerializeTupleVariant, serialize_field);

pub(super) struct ObjectSerializer<'w> {
    writer: &'w mut Writer,
    frame: ObjectFrame,
    /// A key is written and its value is not.
    key_waits: bool,
    wrapper: Wrapper,
}

impl ObjectSerializer<'_> {
    #[inline]
    fn field<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<()> {
        self.writer.key(&mut self.frame, key).map_err(|error| self.writer.fail(error))?;
        write_value(self.writer, value)
    }

    #[inline]
    fn close(self) -> Result<()> {
        self.writer.close_object(self.frame)?;
        self.wrapper.map_or(Ok(()), |wrapper| self.writer.close_object(wrapper))
    }

    /// Holds a hand-written `Serialize` to keys and values in turn.
    #[inline]
    fn expect_key_waits(&mut self, expected: bool) -> Result<()> {
        if self.key_waits == expected {
            return Ok(());
        }
        let message = if expected { "a map gave a value without a key" } else { "a map gave a key without a value" };
        Err(self.writer.fail(CanonicalError::serialize(message)))
    }
}

impl ser::SerializeMap for ObjectSerializer<'_> {
    type Ok = ();
    type Error = Box<CanonicalError>;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.expect_key_waits(false)?;
        let text_only = TextOnly { writer: &mut *self.writer, role: Role::Key(&mut self.frame) };
        key.serialize(text_only).map_err(|error| self.writer.fail(error))?;
        self.key_waits = true;
        Ok(())
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.expect_key_waits(true)?;
        self.key_waits = false;
        write_value(self.writer, value)
    }

    #[inline]
    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(&mut self, key: &K, value: &V) -> Result<()> {
        self.serialize_key(key)?;
        self.key_waits = false;
        write_value(self.writer, value)
    }

    fn end(mut self) -> Result<()> {
        self.expect_key_waits(false)?;
        self.close()
    }
}

pub(super) enum StructSerializer<'w> {
    Object(ObjectSerializer<'w>),
    /// One of serde_json's own structs; the role is taken when its field is written.
    JsonText {
        writer: &'w mut Writer,
        name: &'static str,
        role: Option<Role<'static>>,
    },
}

impl StructSerializer<'_> {
    #[inline]
    fn field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<()> {
        match self {
            Self::Object(object) => object.field(key, value),
            Self::JsonText { writer, name, role } => {
                let result = match role.take() {
                    Some(role) if key == *name => value.serialize(TextOnly { writer, role }),
                    _ => Err(CanonicalError::serialize("a JSON text has other fields than its own")),
                };
                result.map_err(|error| writer.fail(error))
            }
        }
    }

    #[inline]
    fn close(self) -> Result<()> {
        match self {
            Self::Object(object) => object.close(),
            Self::JsonText { role: None, .. } => Ok(()),
            Self::JsonText { role: Some(_), .. } => Err(CanonicalError::serialize("a JSON text has no text")),
        }
    }
}

impl ser::SerializeStruct for StructSerializer<'_> {
    type Ok = ();
    type Error = Box<CanonicalError>;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<()> {
        self.field(key, value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

impl ser::SerializeStructVariant for StructSerializer<'_> {
    type Ok = ();
    type Error = Box<CanonicalError>;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<()> {
        self.field(key, value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}
