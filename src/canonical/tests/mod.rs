//! One test per refusal, and what values and texts become.

mod host_features;
mod text;
mod values;

use serde::Serialize;

use super::*;

fn of<T: Serialize + ?Sized>(value: &T) -> Result<String, CanonicalError> {
    canonicalize(value, Limits::DEFAULT).map(CanonicalJson::into_string)
}

fn of_text(text: &str) -> Result<String, CanonicalError> {
    canonicalize_text(text, Limits::DEFAULT).map(CanonicalJson::into_string)
}

fn ok<T: Serialize + ?Sized>(value: &T) -> String {
    of(value).unwrap()
}

/// A `Serialize` written by hand.
macro_rules! by_hand {
    (|$serializer:ident| $body:expr) => {{
        struct Hand;
        impl Serialize for Hand {
            fn serialize<S: Serializer>(&self, $serializer: S) -> Result<S::Ok, S::Error> {
                $body
            }
        }
        Hand
    }};
}

use by_hand;
