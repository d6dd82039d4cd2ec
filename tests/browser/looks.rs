//! Looks.
